"""Files of families (tests/vectors/families.py) that are damaged or hostile are refused by the name of what is wrong."""
import json
import re
import subprocess

import pytest
from family_files import BUILD, FAMILIES, JOINED_QKV, LONGER, MISSING, P, R, S, SSM, W, make_gguf, model, write

# family, what is set (keys without the architecture's name; tensors as shapes), what the refusal says
HOSTILE = [
    ("gemma2", {W: 0}, "gemma2.attention.sliding_window is 0, expected 1 to"),
    ("gemma2", {"attn_logit_softcapping": -1.0}, "attn_logit_softcapping is -1, expected 0 to"),
    ("gemma2", {"final_logit_softcapping": float("inf")}, "final_logit_softcapping is inf"),
    ("gemma2", {"blk.1.post_ffw_norm.weight": MISSING}, "tensor blk.1.post_ffw_norm.weight (48) is missing"),
    ("gemma2", {"blk.1.attn_q_norm.weight": [20]}, "blk.1.attn_q_norm.weight is not one that architecture gemma2 has"),
    ("gemma2", {"residual_scale": 0.5}, "gemma2.residual_scale is not one that hokku knows of architecture gemma2"),
    ("gemma3", {"attn_logit_softcapping": 5.0}, "gemma3.attn_logit_softcapping is not one that hokku knows of architecture gemma3"),
    ("gemma4", {"attn_logit_softcapping": 5.0}, "gemma4.attn_logit_softcapping is not one that hokku knows of architecture gemma4"),
    ("gemma3", {P: 0}, "sliding_window_pattern is 0, expected 1 to"),
    ("gemma3", {P: [True, False]}, "an array of 2 values of type bool, expected a number or a bool for each of 8 layers"),
    ("gemma3", {P: [1] * 8}, "of type uint32, expected a number or a bool for each of 8 layers"),
    ("gemma3", {"rope.freq_base_swa": -1.0}, "rope.freq_base_swa is -1"),
    ("gemma3", {"attention.head_count": 0}, "attention.head_count is 0, expected 1 to"),
    ("gemma3", {"attention.head_count_kv": 3}, "4 attention heads cannot share 3 KV heads evenly"),
    ("gemma3", {"attention.head_count": 2**31}, "expected 1 to 4,096"),
    ("gemma3", {"expert_count": 4}, "4 experts per layer (gemma3.expert_count)"),
    ("gemma4", {P: MISSING}, "gemma4.attention.sliding_window_pattern is missing"),
    ("gemma4", {W: 0}, "gemma4.attention.sliding_window is 0, expected 1 to"),
    ("gemma4", {W: MISSING}, "gemma4.attention.sliding_window is missing, expected how many positions layer 0 sees"),
    ("cohere2", {W: MISSING}, "cohere2.attention.sliding_window is missing, expected how many positions layer 0 sees"),
    ("exaone-moe", {W: MISSING}, "exaone-moe.attention.sliding_window is missing, expected how many positions layer 0 sees"),
    ("exaone-moe", {P: [True] * 4}, "an array of 4 values of type bool, expected a number or a bool for each of 6 layers"),
    ("gpt-oss", {W: MISSING, P: [False, True, False, False]}, "gpt-oss.attention.sliding_window is missing, expected how many positions layer 1 sees"),
    ("gemma4", {"attention.shared_kv_layers": 6}, "gemma4.attention.shared_kv_layers is 6, expected 0 to 5"),
    ("gemma4", {"attention.shared_kv_layers": 4}, "layer 3 has no keys and values of its own (gemma4.attention.shared_kv_layers is 4), and "
     "layer 2, whose it would use, has another window"),
    ("gemma4", {"attention.shared_kv_layers": 0}, "tensor blk.4.attn_k.weight (48 x 12) is missing"),
    ("gemma4", {"attention.head_count_kv": [1, 2, 1, 2, 1, 2, 2]}, "layer 5 has no keys and values of its own"),
    ("gemma4", {"attention.key_length_swa": 14}, "gemma4.attention.value_length_swa is 12 and the key length 14"),
    ("gemma3", {"attention.key_length": 27, "attention.value_length": 27},
     "heads are 27 wide and metadata key gemma3.rope.dimension_count is missing, expected an even number"),
    ("gemma4", {"attention.value_length": 12}, "gemma4.attention.value_length is 12 and the key length 20"),
    ("gemma4", {"rope.dimension_count_swa": 14}, "gemma4.rope.dimension_count_swa is 14, expected 2 to 12"),
    ("gemma4", {"rope.dimension_count_swa": 7}, "gemma4.rope.dimension_count_swa is 7, expected an even number"),
    ("gemma4", {S: [3, 640]}, "tokenizer.ggml.suppress_tokens has 640, expected ids below the 640 tokens"),
    ("gemma4", {S: make_gguf.Typed("array", ("i32", [-1]))}, "tokenizer.ggml.suppress_tokens has -1, expected ids below the 640 tokens"),
    ("gemma4", {S: ["<pad>"]}, "tokenizer.ggml.suppress_tokens is no array of token ids"),
    ("gemma4", {S: 3}, "tokenizer.ggml.suppress_tokens is no array of token ids"),
    ("gemma4", {S: list(range(33))}, "tokenizer.ggml.suppress_tokens has 33 ids, expected at most 32"),
    ("gemma4", {"embedding_length_per_layer_input": 0}, "inp_gate.weight is not one that architecture gemma4 has"),
    ("gemma4", {"embedding_length_per_layer_input": 17}, "per_layer_token_embd.weight has shape 126 x 640, expected 119 x 640"),
    ("gemma4", {"embedding_length_per_layer_input": 2**31}, "embedding_length_per_layer_input is 2,147,483,648, expected 0 to 65,536"),
    ("gemma4", {"per_layer_proj_norm.weight": MISSING}, "tensor per_layer_proj_norm.weight (18) is missing"),
    ("gemma4", {"blk.0.attn_v.weight": MISSING}, "tensor blk.0.attn_v.weight (48 x 12) is missing"),
    ("gemma4", {"blk.2.layer_output_scale.weight": [2]}, "blk.2.layer_output_scale.weight has shape 2, expected 1"),
    ("gemma4-moe", {"expert_feed_forward_length": MISSING}, "gemma4.expert_feed_forward_length is missing"),
    ("gemma4-moe", {"blk.1.ffn_gate_up_exps.weight": MISSING}, "tensor blk.1.ffn_gate_up_exps.weight (48 x 48 x 7) is missing"),
    ("gemma4-moe", {"blk.1.ffn_gate_up_exps.weight": [48, 47, 7]}, "blk.1.ffn_gate_up_exps.weight has shape 48 x 47 x 7, expected 48 x 48 x 7"),
    ("gemma4-moe", {"blk.1.ffn_gate_inp.scale": MISSING}, "tensor blk.1.ffn_gate_inp.scale (48) is missing"),
    ("gemma4-moe", {"blk.1.ffn_down_exps.scale": [6]}, "blk.1.ffn_down_exps.scale has shape 6, expected 7"),
    ("gemma4-moe", {"blk.1.ffn_gate_up_exps.scale": [1]}, "blk.1.ffn_gate_up_exps.scale has shape 1, expected 7"),
    ("gemma4", {"blk.1.ffn_down.scale": [2]}, "blk.1.ffn_down.scale has shape 2, expected 1"),
    ("gemma4", {"blk.1.ffn_down.input_scale": [2]}, "blk.1.ffn_down.input_scale has shape 2, expected 1"),
    ("gemma4", {"blk.1.ffn_down.input_scale": make_gguf.Tensor("blk.1.ffn_down.input_scale", [1], "F16")},
     "blk.1.ffn_down.input_scale is of type F16, expected F32"),
    ("gemma4", {"blk.1.ffn_norm.input_scale": [1]}, "tensor blk.1.ffn_norm.input_scale is not one that architecture gemma4 has"),
    ("gemma4", {"token_embd.input_scale": [1]}, "tensor token_embd.input_scale is not one that architecture gemma4 has"),
    ("qwen3moe", {"blk.1.ffn_up_exps.input_scale": [8]}, "blk.1.ffn_up_exps.input_scale has shape 8, expected 9"),
    ("qwen3moe", {"blk.1.ffn_up_exps.input_scale": [9, 2]}, "blk.1.ffn_up_exps.input_scale has shape 9 x 2, expected 9"),
    ("gemma4", {"token_embd.scale": [1]}, "tensor token_embd.scale is not one that architecture gemma4 has"),
    ("gemma4-moe", {"expert_count": 0, "expert_used_count": 0}, "blk.0.ffn_gate_inp.weight is not one that architecture gemma4 has"),
    ("deepseek2", {"attention.kv_lora_rank": 0}, "deepseek2.attention.kv_lora_rank is 0, expected 1 to 2,048"),
    ("deepseek2", {"attention.kv_lora_rank": MISSING}, "deepseek2.attention.kv_lora_rank is missing"),
    ("deepseek2", {"attention.kv_lora_rank": 41}, "deepseek2.attention.key_length is 50, expected 49, which follows from others"),
    ("deepseek2", {"attention.q_lora_rank": 2**31}, "deepseek2.attention.q_lora_rank is 2,147,483,648, expected 0 to"),
    ("deepseek2", {"attention.q_lora_rank": 0}, "tensor blk.0.attn_q.weight (48 x 114) is missing"),
    ("deepseek2", {"attention.key_length_mla": 8}, "deepseek2.attention.key_length_mla is 8, expected 9 to"),
    ("deepseek2", {"attention.value_length_mla": MISSING}, "deepseek2.attention.value_length_mla is missing"),
    ("deepseek2", {"attention.value_length_mla": 8}, "blk.0.attn_v_b.weight has shape 42 x 9 x 6, expected 42 x 8 x 6"),
    ("deepseek2", {"attention.head_count_kv": 2}, "deepseek2.attention.head_count_kv is 2 at layer 0, expected 1"),
    ("deepseek2", {"attention.head_count": 5}, "blk.0.attn_q_b.weight has shape 20 x 114, expected 20 x 95"),
    ("deepseek2", {"rope.dimension_count": 7, "attention.key_length": 49}, "deepseek2.rope.dimension_count is 7, expected an even number"),
    ("deepseek2", {"rope.dimension_count": MISSING}, "deepseek2.rope.dimension_count is missing"),
    ("deepseek2", {"rope.scaling.attn_factor": 1.5}, "deepseek2.rope.scaling.attn_factor is 1.5; only 1 is supported"),
    ("deepseek2", {"blk.0.attn_k_b.weight": [11, 252]}, "blk.0.attn_k_b.weight has shape 11 x 252, expected 11 x 42 x 6"),
    ("deepseek2", {"blk.0.attn_kv_a_norm.weight": MISSING}, "tensor blk.0.attn_kv_a_norm.weight (42) is missing"),
    ("deepseek2", {"blk.0.attn_k.weight": [48, 8]}, "blk.0.attn_k.weight is not one that architecture deepseek2 has"),
    ("deepseek2", {"expert_count": MISSING}, "tensor blk.1.ffn_gate.weight (48 x 80) is missing"),
    ("deepseek2", {"attention.temperature_scale": 0.4}, "deepseek2.attention.temperature_length is missing"),
    ("deepseek2-lite", {"attention.head_count_kv": 1}, "deepseek2.attention.head_count_kv is 1 at layer 0, expected 3"),
    ("deepseek2-lite", {"attention.value_length": 13}, "blk.0.attn_kv_b.weight has shape 30 x 72, expected 30 x 69"),
    ("deepseek2-lite", {"blk.1.attn_kv_b.weight": MISSING}, "tensor blk.1.attn_kv_b.weight (30 x 72) is missing"),
    ("deepseek2-lite", {"blk.0.attn_q_a.weight": [48, 8]}, "blk.0.attn_q_a.weight is not one that"),
    ("mistral4", {"attention.temperature_length": MISSING}, "mistral4.attention.temperature_length is missing"),
    ("mistral4", {"attention.temperature_length": 0}, "mistral4.attention.temperature_length is 0, expected 1 to"),
    ("lfm2", {"shortconv.l_cache": 1}, "lfm2.shortconv.l_cache is 1, expected 2 to 64"),
    ("lfm2", {"shortconv.l_cache": MISSING}, "lfm2.shortconv.l_cache is missing"),
    ("lfm2", {"shortconv.l_cache": 3}, "blk.0.shortconv.conv.weight has shape 4 x 48, expected 3 x 48"),
    ("lfm2", {"attention.head_count_kv": [0, 0, 0, 0]}, "no layer has attention heads and KV heads"),
    ("lfm2", {"attention.head_count_kv": 3}, "tensor blk.0.attn_q.weight (48 x 48) is missing"),
    ("lfm2", {"attention.head_count": [6, 0, 6, 6]}, "lfm2.attention.head_count_kv is 3 at layer 1, expected 0, as attention.head_count"),
    ("lfm2", {"blk.0.shortconv.in_proj.weight": [48, 96]}, "blk.0.shortconv.in_proj.weight has shape 48 x 96, expected 48 x 144"),
    ("lfm2", {"token_embd_norm.weight": MISSING}, "tensor token_embd_norm.weight (48) is missing"),
    ("lfm2", {"output_norm.weight": [48]}, "output_norm.weight is not one that architecture lfm2 has"),
    ("qwen35", {"ssm.state_size": 0}, "qwen35.ssm.state_size is 0, expected 1 to 1,024"),
    ("qwen35", {"ssm.state_size": 2**31}, "qwen35.ssm.state_size is 2,147,483,648, expected 1 to"),
    ("qwen35", {"ssm.conv_kernel": 1}, "qwen35.ssm.conv_kernel is 1, expected 2 to 64"),
    ("qwen35", {"ssm.conv_kernel": 5}, "blk.0.ssm_conv1d.weight has shape 4 x 168, expected 5 x 168"),
    ("qwen35", {"ssm.inner_size": 85}, "qwen35.ssm.inner_size is 85, expected 84: 6 heads (ssm.time_step_rank) of 14"),
    ("qwen35", {"ssm.group_count": 4}, "6 heads cannot share 4 key heads evenly"),
    ("qwen35", {"ssm.group_count": MISSING}, "qwen35.ssm.group_count is missing"),
    ("qwen35", {"ssm.time_step_rank": 0}, "qwen35.ssm.time_step_rank is 0, expected 1 to"),
    ("qwen35", {"full_attention_interval": 0}, "qwen35.full_attention_interval is 0, expected 1 to 5"),
    ("qwen35", {"full_attention_interval": 6}, "qwen35.full_attention_interval is 6, expected 1 to 5"),
    ("qwen35", {"full_attention_interval": 2}, "blk.1.attn_qkv.weight has shape 48 x 168, expected 48 x 360"),
    ("qwen35", {R: [True, False, True, False, True]}, "qwen35.attention.recurrent_layers is false at layer 1, expected true: of "
     "3 layers one attends (qwen35.full_attention_interval)"),
    ("qwen35", {R: [True] * 5}, "qwen35.attention.recurrent_layers is true at layer 2, expected false"),
    ("qwen35", {R: [True, True, False, True]}, "qwen35.attention.recurrent_layers is no array of a bool for each of 5 layers"),
    ("qwen35", {R: [1, 1, 0, 1, 1]}, "qwen35.attention.recurrent_layers is no array of a bool for each of 5 layers"),
    ("qwen35", {R: True}, "qwen35.attention.recurrent_layers is no array of a bool for each of 5 layers"),
    ("qwen35", {"full_attention_interval": MISSING, R: [True, True, False, True, True]}, "recurrent_layers is false at layer 2, expected true: of 4"),
    ("lfm2", {R: [True, False, True, False]}, "lfm2.attention.recurrent_layers is not one that hokku knows"),
    ("qwen35", {"blk.0.ssm_a": MISSING}, "tensor blk.0.ssm_a (6) is missing"),
    ("qwen35", {"blk.0.ssm_a": [5]}, "blk.0.ssm_a has shape 5, expected 6"),
    ("qwen35", {"blk.0.ssm_ba.weight": [48, 12]}, "blk.0.ssm_ba.weight is not one that architecture qwen35 has"),
    ("qwen35", {"blk.2.attn_q.weight": [48, 120]}, "blk.2.attn_q.weight has shape 48 x 120, expected 48 x 240"),
    ("qwen3next-by_keys", {"blk.1.ssm_in.weight": [48, 191]}, "blk.1.ssm_in.weight has shape 48 x 191, expected 48 x 192"),
    ("qwen3next-by_keys", {"blk.1.ssm_in.weight": MISSING}, "tensor blk.1.attn_qkv.weight (48 x 120) is missing"),
    ("qwen3next-by_keys", {"blk.1.attn_qkv.weight": [48, 120], "blk.1.attn_gate.weight": [48, 72]}, "blk.1.ssm_in.weight is not one that"),
    ("qwen35", {"blk.1.ssm_in.weight": [48, 252]}, "blk.1.ssm_in.weight is not one that architecture qwen35 has"),
    ("qwen3next", {"blk.1.ssm_ba.weight": MISSING}, "tensor blk.1.ssm_ba.weight (48 x 12) is missing"),
    ("qwen35moe", {"blk.1.ssm_out.weight": MISSING}, "tensor blk.1.ssm_out.weight (40 x 48) is missing"),
    ("mamba2", {"ssm.state_size": 0}, "mamba2.ssm.state_size is 0, expected 1 to 1,024"),
    ("mamba2", {"ssm.state_size": 2**31}, "mamba2.ssm.state_size is 2,147,483,648, expected 1 to 1,024"),
    ("mamba2", {"ssm.state_size": 15}, "blk.0.ssm_in.weight has shape 48 x 230, expected 48 x 234"),
    ("mamba2", {"ssm.conv_kernel": 0}, "mamba2.ssm.conv_kernel is 0, expected 2 to 64"),
    ("mamba2", {"ssm.conv_kernel": 2**31}, "mamba2.ssm.conv_kernel is 2,147,483,648, expected 2 to 64"),
    ("mamba2", {"ssm.conv_kernel": 5}, "blk.0.ssm_conv1d.weight has shape 4 x 140, expected 5 x 140"),
    ("mamba2", {"ssm.group_count": 0}, "mamba2.ssm.group_count is 0, expected 1 to 4,096"),
    ("mamba2", {"ssm.group_count": 4}, "6 heads cannot share 4 groups evenly (mamba2.ssm.time_step_rank, group_count)"),
    ("mamba2", {"ssm.group_count": 12}, "6 heads cannot share 12 groups evenly"),
    ("mamba2", {"ssm.time_step_rank": 0}, "mamba2.ssm.time_step_rank is 0, expected 1 to 4,096"),
    ("mamba2", {"ssm.time_step_rank": 5}, "mamba2.ssm.inner_size is 84, expected a multiple of the 5 heads (mamba2.ssm.time_step_rank)"),
    ("mamba2", {"ssm.inner_size": MISSING}, "mamba2.ssm.inner_size is missing"),
    ("mamba2", {"ssm.inner_size": 2**31}, "mamba2.ssm.inner_size is 2,147,483,648, expected 1 to 1,048,576"),
    ("mamba2", {"ssm.dt_b_c_rms": True}, "mamba2.ssm.dt_b_c_rms is not one that hokku knows of architecture mamba2"),
    ("mamba2", {"rope.dimension_count": 8}, "mamba2.rope.dimension_count is not one that hokku knows of architecture mamba2"),
    ("mamba2", {"feed_forward_length": 16}, "tensor blk.0.ffn_norm.weight (48) is missing"),
    ("mamba2", {"blk.0.ssm_norm.weight": [84]}, "blk.0.ssm_norm.weight has shape 84, expected 42 x 2"),
    ("mamba2", {"blk.0.ssm_a": [6]}, "blk.0.ssm_a has shape 6, expected 1 x 6"),
    ("mamba2", {"blk.1.ssm_norm.weight": MISSING}, "tensor blk.1.ssm_norm.weight (42 x 2) is missing"),
    ("mamba2", {"blk.1.ssm_d": MISSING}, "tensor blk.1.ssm_d (1 x 6) is missing"),
    ("mamba2", {"blk.1.ssm_conv1d.bias": MISSING}, "tensor blk.1.ssm_conv1d.bias (140) is missing"),
    ("mamba2", {"blk.0.attn_q.weight": [48, 48]}, "blk.0.attn_q.weight is not one that architecture mamba2 has"),
    ("falcon-h1", {"blk.1.ffn_norm": MISSING}, "tensor blk.1.ffn_norm (48) is missing"),
    ("falcon-h1", {"blk.1.ssm_out.weight": MISSING}, "tensor blk.1.ssm_out.weight (72 x 48) is missing"),
    ("falcon-h1", {"attention.head_count_kv": 0}, "falcon-h1.attention.head_count_kv is 0, expected 1 to 4,096"),
    ("granitehybrid", {"attention.head_count_kv": 3}, "tensor blk.0.attn_q.weight (48 x 48) is missing"),
    ("granitehybrid", {"attention.head_count_kv": 0}, "tensor blk.1.ssm_in.weight (48 x 189) is missing"),
    ("granitehybrid", {"rope.scaling.finetuned": "no"}, "granitehybrid.rope.scaling.finetuned"),
    ("nemotron_h", {"feed_forward_length": [0, 80, 0, 0, 0]}, "tensor blk.4.ssm_in.weight (48 x 246) is missing"),
    ("nemotron_h", {"attention.head_count_kv": [2, 0, 2, 0, 0]}, "tensor blk.0.attn_q.weight (48 x 80) is missing"),
    ("nemotron_h", {"blk.1.ffn_gate.weight": [48, 80]}, "blk.1.ffn_gate.weight is not one that architecture nemotron_h has"),
    ("nemotron_h", {"blk.1.ffn_norm.weight": [48]}, "blk.1.ffn_norm.weight is not one that architecture nemotron_h has"),
    ("nemotron_h_moe", {"moe_latent_size": 20}, "tensor blk.1.ffn_latent_down.weight (48 x 20) is missing"),
    ("nemotron_h_moe-latent", {"moe_latent_size": 21}, "blk.1.ffn_latent_down.weight has shape 48 x 20, expected 48 x 21"),
    ("nemotron_h_moe-latent", {"moe_latent_size": 0}, "blk.1.ffn_up_exps.weight has shape 20 x 24 x 8, expected 48 x 24 x 8"),
    ("nemotron_h_moe-latent", {"moe_latent_size": 2**31}, "nemotron_h_moe.moe_latent_size is 2,147,483,648, expected 0 to 1,048,576"),
    ("qwen3moe", JOINED_QKV | {"blk.0.attn_qkv.weight": [48, 143]}, "blk.0.attn_qkv.weight has shape 48 x 143, expected 48 x 144"),
    ("qwen3moe", JOINED_QKV, "tensor blk.0.attn_q.weight (48 x 72) is missing"),
    ("qwen3moe", {"blk.0.attn_qkv.weight": [48, 144]}, "blk.0.attn_qkv.weight is not one that architecture qwen3moe has"),
    ("qwen3moe", {"blk.1.ffn_gate_exps.weight": MISSING, "blk.1.ffn_up_exps.weight": MISSING, "blk.1.ffn_gate_up_exps.weight": [48, 79, 9]},
     "blk.1.ffn_gate_up_exps.weight has shape 48 x 79 x 9, expected 48 x 80 x 9"),
    ("qwen3moe", {"blk.1.ffn_gate_exps.weight": MISSING, "blk.1.ffn_gate_up_exps.weight": [48, 80, 9]},
     "blk.1.ffn_up_exps.weight is not one that architecture qwen3moe has"),
    ("qwen3vl", {"blk.1.ffn_gate.weight": MISSING, "blk.1.ffn_up.weight": [48, 160]}, "tensor blk.1.ffn_gate.weight (48 x 80) is missing"),
    ("gpt-oss", {"blk.2.ffn_gate_exps.bias": MISSING, "blk.2.ffn_up_exps.bias": MISSING, "blk.2.ffn_gate_up_exps.bias": [80, 5]},
     "blk.2.ffn_gate_up_exps.bias has shape 80 x 5, expected 80 x 6"),
    ("qwen3moe", {"expert_count": 0}, "qwen3moe.expert_count is 0, expected 1 to 4,096"),
    ("qwen3moe", {"expert_count": MISSING}, "qwen3moe.expert_count is missing"),
    ("qwen3moe", {"expert_count": 2**31}, "qwen3moe.expert_count is 2,147,483,648, expected 1 to 4,096"),
    ("qwen3moe", {"expert_count": 8}, "tensor blk.0.ffn_gate_inp.weight has shape 48 x 9, expected 48 x 8"),
    ("mixtral", {"expert_count": 0, "expert_used_count": 0}, "tensor blk.0.ffn_gate.weight (48 x 40) is missing"),
    ("mixtral", {"expert_used_count": 6}, "llama.expert_used_count is 6, expected 1 to 5"),
    ("mixtral", {"expert_used_count": 0}, "llama.expert_used_count is 0, expected 1 to 5"),
    ("mixtral", {"expert_used_count": MISSING}, "llama.expert_used_count is missing"),
    ("mixtral", {"blk.1.ffn_gate_inp.weight": MISSING}, "tensor blk.1.ffn_gate_inp.weight (48 x 5) is missing"),
    ("mixtral", {"blk.1.ffn_up_exps.weight": MISSING}, "tensor blk.1.ffn_up_exps.weight (48 x 40 x 5) is missing"),
    ("mixtral", {"blk.1.ffn_up_exps.weight": [48, 40, 4]}, "blk.1.ffn_up_exps.weight has shape 48 x 40 x 4, expected 48 x 40 x 5"),
    ("mixtral", {"blk.2.ffn_down_exps.weight": [40, 240]}, "blk.2.ffn_down_exps.weight has shape 40 x 240, expected 40 x 48 x 5"),
    ("mixtral", {"blk.0.exp_probs_b.bias": [5]}, "blk.0.exp_probs_b.bias is not one that architecture llama has"),
    ("mixtral", {"blk.0.ffn_gate.bias": [40]}, "blk.0.ffn_gate.bias is not one that architecture llama has"),
    ("llama-biases", {"blk.1.ffn_gate.bias": [79]}, "blk.1.ffn_gate.bias has shape 79, expected 80"),
    ("internlm2", {"blk.1.ffn_gate.bias": [80]}, "blk.1.ffn_gate.bias is not one that architecture internlm2 has"),
    ("mixtral", {"blk.0.ffn_up_shexp.weight": [48, 40]}, "blk.0.ffn_up_shexp.weight is not one that architecture llama has"),
    ("mixtral", {"expert_gating_func": 3}, "llama.expert_gating_func is 3, expected 0 to 2"),
    ("mixtral", {"expert_weights_scale": float("nan")}, "llama.expert_weights_scale is nan, expected a finite"),
    ("mixtral", {"expert_feed_forward_length": 0}, "llama.expert_feed_forward_length is 0 at layer 0, expected 1 to"),
    ("mixtral", {"feed_forward_length": MISSING}, "llama.expert_feed_forward_length is missing, and feed_forward_length gives no width of"),
    ("mixtral", {"feed_forward_length": [40, 0, 40]}, "llama.expert_feed_forward_length is missing, and feed_forward_length gives no width of"),
    ("gemma2", {"feed_forward_length": MISSING}, "gemma2.feed_forward_length is missing, expected the width of the feed-forward network of layer 0"),
    ("gemma2", {"feed_forward_length": 0}, "gemma2.feed_forward_length is 0 at layer 0, expected 1 to 16777216"),
    ("gemma4-moe", {"feed_forward_length": [80, 0, 80, 80]}, "gemma4.feed_forward_length is 0 at layer 1, expected 1 to 16777216"),
    ("dots1", {"feed_forward_length": MISSING}, "dots1.feed_forward_length is missing, expected the width of the feed-forward network of layer 0"),
    ("llama4", {"feed_forward_length": [80, 0, 0, 0, 80]}, "llama4.feed_forward_length is 0 at layer 2, expected 1 to 16777216"),
    ("nemotron_h_moe", {"feed_forward_length": MISSING}, "nemotron_h_moe.feed_forward_length is missing"),
    ("mixtral", {"leading_dense_block_count": 4}, "llama.leading_dense_block_count is 4, expected 0 to 3"),
    ("mixtral", {"leading_dense_block_count": 1}, "tensor blk.0.ffn_gate.weight (48 x 40) is missing"),
    ("ernie4_5-moe", {"interleave_moe_layer_step": 0}, "interleave_moe_layer_step is 0, expected 1 to"),
    ("ernie4_5-moe", {"expert_shared_feed_forward_length": 41}, "ffn_gate_shexp.weight has shape 48 x 40, expected 48 x 41"),
    ("ernie4_5-moe", {"expert_feed_forward_length": [24, 24, 24, 0, 24]}, "expert_feed_forward_length is 0 at layer 3, expected 1 to 16777216: it has experts"),
    ("qwen2moe", {"expert_feed_forward_length": [24, 23, 24]}, "blk.1.ffn_gate_exps.weight has shape 48 x 24 x 7, expected 48 x 23 x 7"),
    ("qwen2moe", {"expert_shared_feed_forward_length": [56, 56]}, "expert_shared_feed_forward_length has 2 values, expected one for each of 3 layers"),
    ("dots1", {"expert_shared_feed_forward_length": 1 << 24, "expert_shared_count": 4096},
     "shared experts 68719476736 wide, expected at most 16777216"),
    ("bailingmoe2", {"expert_group_count": 5}, "bailingmoe2.expert_count 12 is not a multiple of the 5 groups"),
    ("bailingmoe2", {"expert_group_count": 13}, "bailingmoe2.expert_group_count is 13, expected 0 to 12"),
    ("bailingmoe2", {"expert_group_used_count": 5}, "bailingmoe2.expert_group_used_count is 5, expected 1 to 4"),
    ("bailingmoe2", {"expert_group_used_count": MISSING}, "bailingmoe2.expert_group_used_count is missing"),
    ("bailingmoe2", {"expert_group_used_count": 2, "expert_used_count": 7}, "expert_used_count is 7, expected 1 to 6: the experts of 2 groups of 4"),
    ("glm4moe", {"nextn_predict_layers": 4}, "glm4moe.nextn_predict_layers is 4, expected 0 to 3"),
    ("llama4", {"nextn_predict_layers": 5}, "llama4.nextn_predict_layers is 5, expected 0 to 4"),
    ("gemma2", {"nextn_predict_layers": 1, "blk.5.nextn.enorm.weight": [48]}, "blk.5.nextn.enorm.weight is not one that"),
    ("glm4moe", {"nextn_predict_layers": 0, "blk.3.nextn.enorm.weight": [48]}, "blk.3.nextn.enorm.weight is not one that"),
    ("gpt-oss", {"blk.0.attn_sinks.weight": MISSING}, "tensor blk.0.attn_sinks.weight (6) is missing"),
    ("gpt-oss", {"blk.0.attn_sinks.weight": [3]}, "blk.0.attn_sinks.weight has shape 3, expected 6"),
    ("gpt-oss", {"blk.2.ffn_up_exps.bias": [40, 5]}, "blk.2.ffn_up_exps.bias has shape 40 x 5, expected 40 x 6"),
    ("gpt-oss", {"blk.2.ffn_gate_inp.bias": MISSING}, "tensor blk.2.ffn_gate_inp.bias (6) is missing"),
    ("phimoe", {"output.bias": MISSING}, "tensor output.bias (640) is missing"),
    ("llama4", {W: 0}, "llama4.attention.sliding_window is 0, expected 1 to"),
    ("llama4", {"attention.temperature_length": 0}, "llama4.attention.temperature_length is 0, expected 1 to"),
    ("llama4", {"blk.0.attn_q_norm.weight": [12]}, "blk.0.attn_q_norm.weight is not one that architecture llama4 has"),
    ("phi3-short", {"blk.0.attn_qkv.weight": [48, 95]}, "blk.0.attn_qkv.weight has shape 48 x 95, expected 48 x 96"),
    ("phi3-short", {"blk.2.ffn_up.weight": [48, 80]}, "blk.2.ffn_up.weight has shape 48 x 80, expected 48 x 160"),
    ("phi3-short", {"attention.head_count_kv": 2}, "blk.0.attn_qkv.weight has shape 48 x 96, expected 48 x 80"),
    ("phi3-short", {"blk.0.attn_q.weight": [48, 48]}, "tensor blk.0.attn_k.weight (48 x 24) is missing"),
    ("phi3-short", {"blk.1.ffn_gate.weight": [48, 80]}, "blk.1.ffn_up.weight has shape 48 x 160, expected 48 x 80"),
    ("phi3-short", {"rope_factors_long.weight": MISSING}, "only one of the tensors rope_factors_short and rope_factors_long"),
    ("phi3-short", {"rope_factors_long.weight": [2]}, "rope_factors_long.weight has shape 2, expected 3"),
    ("phi3-short", {"rope.scaling.original_context_length": 0}, "original_context_length is 0, expected 1"),
    ("qwen3vl", {"rope.dimension_sections": ["x"]}, "qwen3vl.rope.dimension_sections is an array of string, expected integers"),
    ("qwen3vl", {"rope.dimension_sections": [True, False]}, "qwen3vl.rope.dimension_sections is an array of bool, expected integers"),
    ("qwen3vl", {"rope.dimension_sections": 6}, "qwen3vl.rope.dimension_sections is no array of integers"),
    ("qwen3vl", {"rope.dimension_sections": [1] * 5}, "qwen3vl.rope.dimension_sections has 5 values, expected at most 4"),
    ("qwen3vl", {"rope.dimension_sections": [2, 2, 3, 0]}, "dimension_sections has 3 at 2, expected numbers from 0 on whose sum is at most 6"),
    ("qwen3vl", {"n_deepstack_layers": "x"}, "qwen3vl.n_deepstack_layers"),
    ("qwen3vlmoe", {"rope.dimension_sections": [2, 2, 3, 0]}, "qwen3vlmoe.rope.dimension_sections has 3 at 2"),
    ("qwen3vlmoe", {"expert_count": MISSING}, "qwen3vlmoe.expert_count is missing"),
    ("qwen2vl", {"rope.dimension_sections": [2**31, 1, 1, 1]}, "qwen2vl.rope.dimension_sections has 2147483648 at 0"),
    ("qwen35", {"rope.dimension_sections": [3, 3, 2, 0]}, "qwen35.rope.dimension_sections has 3 at 1"),
    ("glm4-sections", {"rope.dimension_sections": [1, 1, 2, 0]}, "glm4.rope.dimension_sections has 2 at 2"),
    ("qwen2vl", {"rope.freq_base": 0.5}, "qwen2vl.rope.freq_base is 0.5, expected 1 to 1e15"),
    ("gemma3", {"rope.freq_base_swa": 1e-30}, "gemma3.rope.freq_base_swa is 1e-30, expected 1 to 1e15"),
    ("mamba2", {"attention.head_count_kv": 3}, "mamba2.attention.head_count_kv is 3 at layer 0, expected 0, as attention.head_count"),
    ("granite", {"logit_scale": 0.0}, "granite.logit_scale is 0, expected above 0"),
    ("granite", {"logit_scale": MISSING}, "granite.logit_scale is missing"),
    ("granite", {"embedding_scale": float("nan")}, "embedding_scale"),
    ("granite", SSM | {"blk.1.ssm_in.weight": [48, 240]}, "blk.1.ssm_in.weight is not one that architecture granite has"),
    ("granite", {"expert_shared_feed_forward_length": 80, "blk.1.ffn_up_shexp.weight": [48, 80]},
     "blk.1.ffn_up_shexp.weight is not one that architecture granite has"),
    ("granite", {"ssm.dt_b_c_rms": True}, "granite.ssm.dt_b_c_rms is not one that hokku knows of architecture granite"),
    ("granite", {"deepstack_mapping": [1, 2]}, "granite.deepstack_mapping is no array of a number for each of 3 layers"),
    ("granite", {"deepstack_mapping": 3}, "granite.deepstack_mapping is no array of a number for each of 3 layers"),
    ("granitemoe", {"deepstack_mapping": [1, 2, 3]}, "granitemoe.deepstack_mapping is not one that hokku knows"),
    ("internlm2", SSM, "internlm2.ssm.conv_kernel is not one that hokku knows of architecture internlm2"),
    ("granite", {"attention.scale": -0.1}, "attention.scale is -0.1, expected above 0"),
    ("mistral3", {"rope.freq_base": 1.0}, "freq_base is 1, expected above 1 with YaRN"),
    ("mistral3", {"rope.scaling.yarn_log_multiplier": -1.0}, "yarn_log_multiplier is -1, expected 0 to"),
    ("mistral3", {"rope.scaling.yarn_ext_factor": 0.5}, "yarn_ext_factor is 0.5"),
    ("olmo3-pattern", {"rope.scaling.yarn_attn_factor": 1.2}, "olmo2.rope.scaling.yarn_attn_factor is 1.2, expected 1.13863, which follows"),
    ("olmo3-pattern", {"rope.scaling.yarn_attn_factor": 1.137}, "olmo2.rope.scaling.yarn_attn_factor is 1.137, expected 1.13863, which"),
    ("olmo3", {"rope.scaling.yarn_attn_factor": LONGER}, "olmo2.rope.scaling.yarn_attn_factor is 1.13863, expected 1.36636, which"),
    ("deepseek2", {"rope.scaling.yarn_attn_factor": LONGER}, "deepseek2.rope.scaling.yarn_attn_factor is 1.13863, expected 1, which"),
    ("mistral3", {"attention.temperature_scale": "much"}, "attention.temperature_scale"),
    ("olmo2", {"blk.0.attn_q_norm.weight": [8]}, "blk.0.attn_q_norm.weight has shape 8, expected 48"),
    ("olmo2", {"blk.0.attn_norm.weight": [48]}, "blk.0.attn_norm.weight is not one that architecture olmo2 has"),
    ("stablelm", {"blk.0.attn_q_norm.weight": MISSING}, "layer 0 has only one of attn_q_norm and attn_k_norm"),
    ("stablelm", {"blk.0.attn_q_norm.weight": [48]}, "blk.0.attn_q_norm.weight has shape 48, expected 8 x 6"),
    ("stablelm", {"attention.layer_norm_epsilon": MISSING}, "stablelm.attention.layer_norm_epsilon is missing"),
    ("nemotron", {"output_norm.bias": MISSING}, "output_norm.bias (48) is missing"),
    ("nemotron", {"blk.0.ffn_gate.weight": [48, 80]}, "blk.0.ffn_gate.weight is not one that"),
    ("apertus", {"xielu.eps": MISSING}, "metadata key xielu.eps is missing"),
    ("apertus", {"xielu.beta": [0.5, 0.5]}, "xielu.beta has 2 values, expected one for each of 3 layers"),
    ("apertus", {"xielu.alpha_p": [0.5, float("nan"), 0.5]}, "xielu.alpha_p is nan at layer 1"),
    ("apertus", {"xielu.alpha_p": 0.5}, "xielu.alpha_p is no array of floats"),
    ("deci", {"attention.head_count": [6, 6, 0, 4]}, "has 4 values, expected one for each of 5 layers"),
    ("deci", {"attention.head_count_kv": [3, 0, 0, 3, 1]}, "4 attention heads cannot share 3 KV heads"),
    ("deci", {"attention.head_count_kv": [3, 1, 0, 4, 1]}, "tensor blk.1.attn_q.weight (48 x 120) is missing"),
    ("deci", {"attention.head_count": [0] * 5, "attention.key_length": MISSING}, "is not a multiple of the 0 heads"),
    ("deci", {"attention.head_count": [0] * 5}, "no layer has attention heads and KV heads, expected one at least"),
    ("deci", {"feed_forward_length": [80, 40, 64, 7, 96]}, "tensor blk.3.ffn_norm.weight (48) is missing"),
    ("exaone", {"blk.0.attn_q_norm.weight": [8]}, "blk.0.attn_q_norm.weight is not one that architecture exaone has"),
    ("gemma", {"final_logit_softcapping": 30.0}, "gemma.final_logit_softcapping is not one that hokku knows of architecture gemma"),
    ("chatglm", {"blk.0.post_ffw_norm.weight": [48]}, "blk.0.post_ffw_norm.weight is not one that architecture chatglm has"),
    ("chatglm", {"blk.1.attn_qkv.bias": [143]}, "blk.1.attn_qkv.bias has shape 143, expected 144"),
    ("minicpm", {"logit_scale": 0.0}, "minicpm.logit_scale is 0, expected above 0"),
    ("afmoe", {"blk.1.attn_gate.weight": MISSING}, "tensor blk.1.attn_gate.weight (48 x 72) is missing"),
    ("afmoe", {"blk.1.attn_gate.weight": [48, 144]}, "blk.1.attn_gate.weight has shape 48 x 144, expected 48 x 72"),
    ("afmoe", {"blk.1.attn_q.weight": [48, 144]}, "blk.1.attn_q.weight has shape 48 x 144, expected 48 x 72"),
    ("olmo", {"blk.1.attn_norm.weight": [48]}, "blk.1.attn_norm.weight is not one that architecture olmo has"),
    ("olmo", {"output_norm.weight": [48]}, "output_norm.weight is not one that architecture olmo has"),
    ("olmo", {"attention.clamp_kqv": -1.0}, "olmo.attention.clamp_kqv is -1, expected 0 to 1e+06"),
    ("olmo2", {"attention.clamp_kqv": 8.0}, "olmo2.attention.clamp_kqv is not one that hokku knows of architecture olmo2"),
    ("hy_v3", {"leading_dense_block_count": 0}, "tensor blk.0.ffn_gate_inp.weight (48 x 8) is missing"),
    ("hy_v3", {"blk.1.ffn_gate_inp.weight": MISSING}, "tensor blk.1.ffn_gate.weight (48 x 80) is missing"),
    ("hy_v3", {"blk.1.exp_probs_b": [7]}, "blk.1.exp_probs_b has shape 7, expected 8"),
    ("hy_v3", {"blk.1.exp_probs_b.bias": [8]}, "blk.1.exp_probs_b is not one that architecture hy_v3 has"),
    ("qwen3moe", {"blk.1.exp_probs_b": [9]}, "blk.1.exp_probs_b is not one that architecture qwen3moe has"),
    ("qwen", {"feed_forward_length": 80}, "blk.0.ffn_gate.weight has shape 48 x 80, expected 48 x 40"),
    ("qwen", {"feed_forward_length": 161}, "qwen.feed_forward_length is 161, expected an even number"),
    ("plm", {"blk.1.ffn_gate.weight": [48, 80]}, "blk.1.ffn_gate.weight is not one that architecture plm has"),
    ("plm", {"attention.kv_lora_rank": 0}, "plm.attention.kv_lora_rank is 0, expected 1 to 2,048"),
    ("cohere2moe", {P: MISSING}, "cohere2moe.attention.sliding_window_pattern is missing"),
    ("cohere2moe", {P: 4}, "cohere2moe.attention.sliding_window_pattern is a number, expected a bool for each of 5 layers"),
    ("cohere2moe", {W: 0}, "cohere2moe.attention.sliding_window is 0, expected 1 to"),
    ("cohere2moe", {"attention.layer_norm_epsilon": MISSING}, "cohere2moe.attention.layer_norm_epsilon is missing"),
    ("cohere2moe", {"logit_scale": MISSING}, "cohere2moe.logit_scale is missing"),
    ("afmoe", {W: MISSING}, "afmoe.attention.sliding_window is missing, expected how many positions layer 0 sees"),
    ("afmoe", {"expert_shared_count": 2**31}, "afmoe.expert_shared_count is 2,147,483,648, expected 0 to 4,096"),
    ("qwen3moe", {"blk.1.attn_gate.weight": [48, 72]}, "blk.1.attn_gate.weight is not one that architecture qwen3moe has"),
    ("hunyuan_vl", {"rope.scaling.alpha": -1.0}, "hunyuan_vl.rope.scaling.alpha is -1, expected 0 to 1e+06"),
    ("hunyuan_vl", {"rope.scaling.alpha": 1e6, "rope.freq_base": 1e12}, "hunyuan_vl.rope.scaling.alpha is 1e+06, which makes rope.freq_base"),
    ("hunyuan_vl", {"attention.key_length": 2, "attention.value_length": 2}, "heads are 2 wide, expected more than 2"),
    ("hunyuan_vl", {"rope.dimension_sections": [16, 16, 16, 16]}, "hunyuan_vl.rope.dimension_sections has 16 at 0"),
    ("qwen2vl", {"rope.scaling.alpha": 2.0}, "qwen2vl.rope.scaling.alpha is not one that hokku knows"),
    ("minicpm3", {"residual_scale": 0.0}, "minicpm3.residual_scale is 0, expected above 0"),
    ("minicpm3", {"attention.scale": 0.5}, "minicpm3.attention.scale is not one that hokku knows of architecture minicpm3"),
    ("minicpm3", {"attention.head_count_kv": 1}, "minicpm3.attention.head_count_kv is 1 at layer 0, expected 6"),
    ("minicpm3", {"attention.value_length": 15}, "blk.0.attn_kv_b.weight has shape 30 x 156, expected 30 x 150"),
    ("minicpm3", {"embedding_length": 2**20, "attention.head_count": 1, "attention.head_count_kv": 1}, "minicpm3.attention.value_length is missing"),
    ("minicpm3", {"expert_count": 4}, "4 experts per layer (minicpm3.expert_count)"),
    ("bailingmoe", {"blk.0.exp_probs_b.bias": [8]}, "blk.0.exp_probs_b.bias is not one that architecture bailingmoe has"),
    ("deepseek", {"expert_shared_count": 1}, "blk.1.ffn_gate_shexp.weight has shape 48 x 48, expected 48 x 24"),
    ("internlm2", {"attention.head_count_kv": [3, 3, 0]}, "head_count_kv is 0 at layer 2, expected 1 to 4096"),
    ("internlm2", {"blk.1.attn_q.bias": [47]}, "blk.1.attn_q.bias has shape 47, expected 48"),
    ("internlm2", {"blk.1.ffn_up.bias": [80]}, "blk.1.ffn_up.bias is not one that architecture internlm2 has"),
    ("internlm2", {"attention.clamp_kqv": 3.0}, "internlm2.attention.clamp_kqv is not one that hokku knows"),
    ("nemotron_h_moe", {"blk.1.ffn_up_exps.weight": MISSING, "blk.1.ffn_gate_up_exps.weight": [48, 48, 8]},
     "tensor blk.1.ffn_up_exps.weight (48 x 24 x 8) is missing"),
    ("deepseek2-lite", {"blk.1.attn_q.weight": MISSING, "blk.1.attn_qkv.weight": [48, 120]},
     "tensor blk.1.attn_q.weight (48 x 48) is missing"),
    *(("gemma3n", {"altup.num_inputs": n}, f"gemma3n.altup.num_inputs is {n:,}, expected 2 to 8") for n in (0, 1, 9, 2**31)),
    ("gemma3n", {"altup.num_inputs": MISSING}, "gemma3n.altup.num_inputs is missing"),
    ("gemma3n", {"altup.num_inputs": 5}, "altup_proj.weight has shape 48 x 48 x 3, expected 48 x 48 x 4"),
    ("gemma3n", {"altup.active_idx": 1}, "gemma3n.altup.active_idx is 1; only 0 is supported"),
    ("gemma3n", {"altup.correct_scale": False}, "gemma3n.altup.correct_scale is false; only true is supported"),
    ("gemma3n", {"altup.coef_clip": 120.0}, "gemma3n.altup.coef_clip is not one that hokku knows of architecture gemma3n"),
    ("gemma3n", {"activation_sparsity_scale": MISSING}, "gemma3n.activation_sparsity_scale is missing"),
    *(("gemma3n", {"activation_sparsity_scale": v}, "gemma3n.activation_sparsity_scale is no array of a float for each of 10 layers")
      for v in (1.6, [1.6] * 9, [1] * 10)),
    *(("gemma3n", {"activation_sparsity_scale": [1.6] * 9 + [float(v)]}, f"gemma3n.activation_sparsity_scale is {v} at layer 9, expected -100")
      for v in ("nan", "inf", "101")),
    *(("gemma3n", {"attention.shared_kv_layers": float(v)}, f"gemma3n.attention.shared_kv_layers is {v}, expected a whole number from 0 to 8")
      for v in ("4.5", "-1", "9", "1e+30", "nan")),
    ("gemma3n", {"attention.shared_kv_layers": 9}, "gemma3n.attention.shared_kv_layers is 9, expected 0 to 8"),
    ("gemma3n", {"attention.shared_kv_layers": 6.0}, "layer 4 has no keys and values of its own (gemma3n.attention.shared_kv_layers is 6)"),
    ("gemma3n", {"attention.shared_kv_layers": 0.0}, "tensor blk.5.attn_k.weight (48 x 24) is missing"),
    ("gemma3n", {W: MISSING}, "gemma3n.attention.sliding_window is missing, expected how many positions layer 0 sees"),
    ("gemma3n", {"attn_logit_softcapping": 5.0}, "gemma3n.attn_logit_softcapping is not one that hokku knows"),
    ("gemma3n", {"embedding_length_per_layer_input": 0}, "is not one that architecture gemma3n has"),
    ("gemma3n", {"altup_proj.weight": MISSING}, "tensor altup_proj.weight (48 x 48 x 3) is missing"),
    ("gemma3n", {"altup_unembd_proj.weight": [48, 48]}, "altup_unembd_proj.weight has shape 48 x 48, expected 48 x 48 x 3"),
    ("gemma3n", {"blk.1.laurel_l.weight": [48, 63]}, "blk.1.laurel_l.weight has shape 48 x 63, expected 48 x 64"),
    ("gemma3n", {"blk.1.laurel_post_norm.weight": MISSING}, "tensor blk.1.laurel_post_norm.weight (48) is missing"),
    ("gemma3n", {"blk.1.altup_predict_coef.weight": [4, 4]}, "blk.1.altup_predict_coef.weight has shape 4 x 4, expected 4 x 16"),
    ("gemma3n", {"blk.1.altup_correct_coef.weight": [16]}, "blk.1.altup_correct_coef.weight has shape 16, expected 4 x 4"),
    ("gemma3n", {"blk.1.altup_correct_scale.weight": MISSING}, "tensor blk.1.altup_correct_scale.weight (48) is missing"),
    ("gemma4", {"blk.1.laurel_l.weight": [48, 64]}, "blk.1.laurel_l.weight is not one that architecture gemma4 has"),
    ("gemma4", {"altup_proj.weight": [48, 48, 3]}, "altup_proj.weight is not one that architecture gemma4 has"),
    ("gptneox", {"use_parallel_residual": MISSING}, "metadata key gptneox.use_parallel_residual"),
    ("gptneox", {"use_parallel_residual": 1}, "gptneox.use_parallel_residual"),
    ("gptneox", {"attention.layer_norm_epsilon": MISSING}, "gptneox.attention.layer_norm_epsilon is missing"),
    ("gptneox", {"rope.dimension_count": 7}, "gptneox.rope.dimension_count is 7, expected an even number"),
    ("gptneox", {"blk.1.ffn_norm.weight": MISSING}, "tensor blk.1.ffn_norm.weight (48) is missing"),
    ("gptneox", {"blk.1.ffn_norm.bias": MISSING}, "tensor blk.1.ffn_norm.bias (48) is missing"),
    ("gptneox", {"blk.1.attn_qkv.bias": [143]}, "blk.1.attn_qkv.bias has shape 143, expected 144"),
    ("gptneox", {"blk.1.ffn_gate.weight": [48, 80]}, "blk.1.ffn_gate.weight is not one that architecture gptneox has"),
    ("gptneox", {"blk.1.attn_norm_2.weight": [48]}, "blk.1.attn_norm_2.weight is not one that architecture gptneox has"),
    ("falcon", {"blk.1.ffn_norm.weight": [48]}, "blk.1.ffn_norm.weight is not one that architecture falcon has"),
    ("falcon", {"blk.1.attn_qkv.bias": [64]}, "blk.1.attn_qkv.bias is not one that architecture falcon has"),
    ("falcon", {"blk.1.attn_norm_2.bias": [48]}, "blk.1.attn_norm_2.bias is not one that architecture falcon has"),
    ("falcon", {"blk.1.attn_norm_2.weight": [48]}, "tensor blk.1.attn_norm_2.bias (48) is missing"),
    ("falcon", {"attention.head_count_kv": 6}, "blk.0.attn_qkv.weight has shape 48 x 64, expected 48 x 144"),
    ("falcon-norms", {"blk.1.attn_norm.weight": MISSING}, "tensor blk.1.attn_norm.weight (48) is missing"),
    ("falcon-norms", {"blk.1.attn_norm.bias": MISSING}, "tensor blk.1.attn_norm.bias (48) is missing"),
    ("falcon-norms", {"blk.1.attn_norm_2.weight": [47]}, "blk.1.attn_norm_2.weight has shape 47, expected 48"),
    *((family, {"position_embd.weight": MISSING}, "tensor position_embd.weight (48 x 2048) is missing") for family in ("gpt2", "starcoder")),
    ("gpt2", {"position_embd.weight": [48, 2047]}, "tensor position_embd.weight has shape 48 x 2047, expected 48 x 2048"),
    ("gpt2", {"context_length": 2049}, "tensor position_embd.weight has shape 48 x 2048, expected 48 x 2049"),
    ("gpt2", {"blk.1.attn_qkv.bias": MISSING}, "tensor blk.1.attn_q.bias (48) is missing"),
    ("gpt2", {"blk.1.ffn_up.bias": MISSING}, "tensor blk.1.ffn_up.bias (80) is missing"),
    ("starcoder", {"attention.head_count_kv": 6}, "blk.0.attn_qkv.weight has shape 48 x 64, expected 48 x 144"),
    ("orion", {"position_embd.weight": [48, 4096]}, "position_embd.weight is not one that architecture orion has"),
    ("mellum", {"blk.1.ffn_gate_inp.weight": MISSING}, "tensor blk.1.ffn_gate_inp.weight (48 x 6) is missing"),
    ("mellum", {"attention.sliding_window": 0}, "mellum.attention.sliding_window is 0, expected 1 to"),
    ("mellum", {"rope.freq_base_swa": 0.0}, "mellum.rope.freq_base_swa is 0"),
    ("mellum", {P: [True, False]}, "an array of 2 values of type bool, expected a number or a bool for each of 5 layers"),
    ("jais2", {"blk.1.attn_k.bias": MISSING}, "tensor blk.1.attn_k.bias (24) is missing"),
    ("jais2", {"blk.1.ffn_gate.weight": [48, 80]}, "blk.1.ffn_gate.weight is not one that architecture jais2 has"),
    ("qwen3next-by_keys", {"blk.0.attn_gate.weight": [48, 64]}, "tensor blk.0.attn_qkv.weight (48 x"),
]


@pytest.mark.parametrize("family, edits, message", HOSTILE, ids=[f"{f}: {m}" for f, _, m in HOSTILE])
def test_a_wrong_file_is_refused_by_what_is_wrong(family, edits, message, tmp_path):
    write(tmp_path / "m.gguf", family, edits)
    r = subprocess.run([BUILD / "src/hokku", "-m", tmp_path / "m.gguf", "--device", "cpu", "-n", "1", "x"], capture_output=True,
                       text=True, timeout=60)
    assert (r.returncode, r.stdout) == (3, "") and message in r.stderr, r.stderr


def test_more_numbers_than_32_bits_count_are_refused(tmp_path):
    kvs, tensors = model(**FAMILIES["gpt-oss-joined"][1])
    many = {"gpt-oss.expert_count": 4096, "gpt-oss.expert_feed_forward_length": 2**20}
    longer = {6: 4096, 40: 2**20, 80: 2**21}
    for t in tensors:
        if "_exps" in t.name or "ffn_gate_inp" in t.name:
            t.ne, t.data = [longer.get(n, n) for n in t.ne], None
    head, offsets = make_gguf.header([(k, many.get(k, v)) for k, v in kvs], tensors, 32, 3)
    with open(tmp_path / "m.gguf", "wb") as f:
        f.write(head)
        f.truncate(len(head) + offsets[-1] + tensors[-1].n_bytes)  # a hole
    r = subprocess.run([BUILD / "src/hokku", "-m", tmp_path / "m.gguf", "--device", "cpu", "-n", "1", "x"], capture_output=True,
                       text=True, timeout=60)
    assert r.returncode == 3 and "tensor blk.0.ffn_gate_up_exps.bias has 8589934592 numbers, expected at most 4294967295" in r.stderr, r


def test_models_with_alibi_are_refused(tmp_path):
    """The larger Baichuan, whose file says it by the number of its layers alone."""
    write(tmp_path / "m.gguf", "baichuan", {}, layers=40)
    r = subprocess.run([BUILD / "src/hokku", "inspect", tmp_path / "m.gguf"], capture_output=True, text=True)
    assert "baichuan.block_count is 40: models of so many layers of this architecture have ALiBi" in r.stdout + r.stderr, r


def test_experts_that_are_chosen_with_a_bias_are_weighed_by_sigmoid_whatever_its_tensor_is_called(tmp_path):
    """As DeepSeek V3 does: early files say it by the bias alone."""
    kvs, tensors = model(**FAMILIES["deepseek2"][1])
    for t in tensors:
        t.name = t.name.replace("exp_probs_b.bias", "exp_probs_b")
    make_gguf.write(tmp_path / "m.gguf", [(k, v) for k, v in kvs if k != "deepseek2.expert_gating_func"], tensors)
    r = subprocess.run([BUILD / "src/hokku", "inspect", tmp_path / "m.gguf"], capture_output=True, text=True, timeout=60)
    assert r.returncode == 0 and "by sigmoid from 2 of 4 groups" in r.stdout, r


def test_weights_that_take_more_in_memory_than_in_the_file_are_counted_so(tmp_path):
    """Queries and their gates of two types become floats: a device's share of them is a share of that."""
    kvs, tensors = model(**FAMILIES["afmoe"][1] | {"embd": 64, "heads": 64, "kv": 2, "head_dim": 64})
    floats = 0
    for t in tensors:
        if t.name.endswith("attn_q.weight"):
            t.type, t.data, floats = "Q4_0", bytes(t.ne[0] * t.ne[1] // 32 * 18), floats + 2 * 4 * t.ne[0] * t.ne[1]
    make_gguf.write(tmp_path / "m.gguf", kvs, tensors)
    r = subprocess.run([BUILD / "src/hokku", "inspect", "--json", "--devices", "0,1", tmp_path / "m.gguf"], capture_output=True,
                       text=True, timeout=60)
    shares = [int(d["weight_bytes"]) for d in json.loads(r.stdout)["hokku"]["devices"]]
    assert floats // 2 < min(shares) and max(shares) < floats, (floats, shares)


@pytest.mark.parametrize("how", [[], ["--dry-run"]])
def test_a_context_beyond_the_positions_of_the_model_is_refused(how, tmp_path):
    """Where each has a row of its own; as many as there are is what it gets if it is not said."""
    write(tmp_path / "m.gguf", "gpt2", {})
    argv = [BUILD / "src/hokku", "-m", tmp_path / "m.gguf", "--device", "cpu", "-n", "1", *how, "x"]
    r = subprocess.run([*argv, "-c", "2049"], capture_output=True, timeout=60)
    assert r.returncode == 2 and b"a context of 2049 tokens: the model has 2048 positions (position_embd.weight), expected -c 2048" in r.stderr, r
    for more in ([], ["-c", "2048"]):
        r = subprocess.run([*argv, *more], capture_output=True, timeout=60)
        assert r.returncode == 0, r


def test_positions_of_the_model_are_all_that_several_share(tmp_path):
    """Those of a draft model are no more for several answers; what is beyond them is not advised."""
    write(tmp_path / "gpt2.gguf", "gpt2", {"context_length": 128, "position_embd.weight": [48, 128]})
    kvs, tensors = model(**FAMILIES["olmo"][1])
    make_gguf.write(tmp_path / "m.gguf", kvs, tensors)
    run = lambda *argv, **more: subprocess.run([BUILD / "src/hokku", *map(str, argv)], capture_output=True, timeout=60, **more)
    r = run("-m", tmp_path / "m.gguf", "-md", tmp_path / "gpt2.gguf", "--device", "cpu", "-n", 2, "--lines", "-np", 2, input=b"a b\nc d\n")
    assert r.returncode == 0, r
    on_gpt2 = "-m", tmp_path / "gpt2.gguf", "--device", "cpu"
    r = run("bench", *on_gpt2, "-n", 8, "-p", 8, "--batch", 4)
    assert r.returncode == 2 and b"positions of all sequences together, expected at most 128" in r.stderr and b"-c" not in r.stderr, r
    r = run(*on_gpt2, "a " * 300)
    assert r.returncode == 5 and b"shorten it: the model has no more positions" in r.stderr, r
    r = run(*on_gpt2, "--ignore-eos", "-n", -1, "a")
    assert b"the answer is cut (--overflow shift)" in r.stderr, r


def test_a_table_of_positions_in_float16_is_counted_as_it_is_in_memory(tmp_path):
    counted = []
    for kind in ("F16", "F32"):
        kvs, tensors = model(**FAMILIES["gpt2"][1])
        for t in tensors:
            if t.name == "position_embd.weight":
                t.type, t.data = kind, bytes(t.ne[0] * t.ne[1] * (2 if kind == "F16" else 4))
        make_gguf.write(tmp_path / "m.gguf", kvs, tensors)
        r = subprocess.run([BUILD / "src/hokku", "-m", tmp_path / "m.gguf", "--device", "cpu", "--dry-run"], capture_output=True, text=True, timeout=60)
        counted.append(re.search(r"weights ([0-9,]+)", r.stdout)[1])
    assert counted[0] == counted[1], counted
