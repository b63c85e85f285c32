"""The small manual of hokku that the model learns by heart. True to the command line's contract.

Each fact: one answer, ways to say what a person wants to do ("how do I ..."), and whole
questions. "(a|b)" is a choice, "(a|)" an optional word; see expand().
"""

from phrasings import HELD_OUT, plain

CHAT = "(the|this|my|our|a) (chat|conversation|session|talk)"
MODEL = "(a|the|my|another|some|my own|a bigger|a different) (model|gguf|gguf file|GGUF model|language model)"

# (answer, how-to phrases, questions)
FACTS = [
    ("Start hokku with -m and the file: hokku -m model.gguf",
     [f"(load|open|use|run|start|choose|pick|select) {MODEL}", "run hokku with (a|my own|another) model",
      "(point|tell) hokku (to|at) (a|my) (model|file)", "load a model", "switch (to another model|models)"],
     ["(which|what) (option|flag) loads (a|the) model?", "where do I (give|put|name) the model (file|)?",
      "what does -m do?", "what is -m (for|)?", "what does --model do?", "how do you load models?"]),
    ("Use -hf USER/REPO, for example hokku -hf USER/REPO:Q4_K_M; the file is kept in the cache.",
     ["(download|get|fetch|pull) a model (from the hub|from Hugging Face|)", "use a model from (the hub|Hugging Face)",
      "get (more|other|bigger|new) models"],
     ["what does -hf do?", "what is --hf-repo?", "what is -hf (for|)?", "where (can|do) I (get|find) models?",
      "can hokku download models?"]),
    ("Without -m hokku takes $HOKKU_MODEL if it is set, else its small built-in model.",
     ["(run|start|use) hokku without a model", "set a default model"],
     ["(which|what) model (is used|do you use|runs) (without -m|by default|if I give none)?",
      "what is the default model?", "what is HOKKU_MODEL (for|)?", "what happens without -m?",
      "what does HOKKU_MODEL do?", "do I need a model file?"]),
    ("Type /bye, /exit or /quit, or press Ctrl-D.",
     ["(quit|exit|leave|close|end|stop) (hokku|the program|the chat|)", "get out (of here|of hokku|)",
      "(leave|end) this (conversation|chat)", "quit", "exit"],
     ["what does /bye do?", "what does /quit do?", "what does /exit do?", "what does Ctrl-D do?",
      "which command ends (hokku|the chat)?", "where is the exit?", "how to get out?"]),
    ("/undo takes back the last turn; /undo 2 takes back two.",
     ["(undo|take back|revert|remove|delete|unsay) (the|my) last (turn|message|answer|question|thing|step)",
      "undo (a turn|something|that|)", "go back (one turn|a step)", "take back what I said"],
     ["what does /undo do?", "what is /undo (for|)?", "which command undoes a turn?", "is there an undo?",
      "can I undo (something|a turn|)?"]),
    ("/redo brings back what /undo removed.",
     ["redo (a turn|what I undid|)", "undo (an|the) undo", "(bring|get) back (an undone turn|what I undid)"],
     ["what does /redo do?", "what is /redo (for|)?", "is there a redo?"]),
    ("/save NAME saves the conversation; /load NAME brings it back.",
     [f"(save|store|keep|write down) {CHAT} (for later|to disk|)", f"save {CHAT}", "keep what we said (for later|)"],
     ["what does /save do?", "what is /save (for|)?", "which command saves (the|a) (chat|conversation)?",
      "can you save (this|our chat)?"]),
    ("/load NAME opens a saved conversation; /sessions lists them.",
     [f"(load|open|restore|reopen|bring back) (a saved|an old|an earlier|my saved|the last) (chat|conversation|session)",
      "(see|list|show|find) (my|all|the) (saved|old) (sessions|chats|conversations)"],
     ["what does /load do?", "what is /load (for|)?", "what does /sessions do?", "what is /sessions (for|)?",
      "where are my (saved|old) (chats|sessions|conversations)?"]),
    ("--session NAME resumes that conversation or begins it, and saves it at every turn.",
     [f"(resume|continue|go on with) {CHAT} (later|tomorrow|after a restart)", "save (every turn|automatically)",
      "resume a session (from the shell|at start|)", "start with a saved session"],
     ["what does --session do?", "what is --session (for|)?", "is (my|the) (chat|conversation) saved automatically?"]),
    ("-s N or --seed N sets the seed; the same seed gives the same text.",
     ["(set|pick|choose|fix|give|change) (the|a|my) (random |)seed", "get the same (answer|text|haiku) (twice|again|every time)",
      "make (answers|the output|it) (reproducible|repeatable|deterministic)", "reproduce an answer"],
     ["what does -s do?", "what does --seed do?", "what is (a|the) seed (for|)?", "what is --seed (for|)?",
      "why is (the|every) answer different (each|every) time?", "are answers reproducible?"]),
    ("-c N sets the context size in tokens; 0 means the model's own size.",
     ["(set|change|choose|make|increase|raise|enlarge) the context (size|length|window|)", "get a (longer|bigger|larger) context",
      "give hokku more context", "use a (small|large) context"],
     ["what does -c do?", "what is -c (for|)?", "what does the (option|flag) -c (do|mean)?", "what does --ctx-size do?",
      "what is --ctx-size (for|)?", "which option sets the context?", "what does -c 0 mean?"]),
    ("--temp N sets the temperature: lower is calmer, 0 always takes the likeliest token.",
     ["(set|change|lower|raise|choose) the temperature", "make (you|the model|answers) (more creative|less random|calmer|wilder)",
      "get greedy (answers|sampling|output)"],
     ["what does --temp do?", "what is --temp (for|)?", "what is the temperature?", "what does temperature mean?",
      "how random are you?"]),
    ("-n N stops after N tokens; -1 goes on until the model ends.",
     ["(limit|cap|set) (the|an) (length|size) of (the|an) answer", "get (a shorter|shorter|longer) (answer|answers)",
      "(limit|set) the (number of|) tokens", "make answers short"],
     ["what does -n do?", "what is -n (for|)?", "what does --n-predict do?", "what is --n-predict (for|)?",
      "which option limits the (length|answer)?"]),
    ("-sys TEXT gives a system prompt; -sys @NAME takes one by name, -sysf FILE from a file.",
     ["(give|set|use|add) (a|the) system (prompt|message)", "tell the model how to behave", "give you instructions"],
     ["what does -sys do?", "what is -sys (for|)?", "what does -sysf do?", "what is --system-prompt (for|)?",
      "what is a system prompt?", "what is -sysf (for|)?"]),
    ("/system TEXT sets the system prompt of this chat.",
     ["change the system prompt (in the chat|while chatting|during the chat)"],
     ["what does /system do?", "what is /system (for|)?", "which command sets the system prompt?"]),
    ("/clear forgets the conversation and starts anew.",
     ["(clear|wipe|reset|forget|erase|empty) (the|this|our) (chat|conversation|context|history)",
      "start (over|again|anew|a new chat|a fresh conversation)", "begin a new conversation", "make you forget (everything|this)"],
     ["what does /clear do?", "what is /clear (for|)?", "which command clears the chat?"]),
    ("/retry gives another answer to the same question; /retry 7 uses seed 7.",
     ["(retry|repeat|redo|regenerate) (the|an|your) answer", "get (another|a new|a different|a better) answer", "ask again",
      "(try|roll) again"],
     ["what does /retry do?", "what is /retry (for|)?", "which command gives another answer?"]),
    ("/edit changes your last message; /edit N changes turn N.",
     ["(edit|change|correct|fix|rewrite) (my|the) (last|) (message|question|turn|prompt)", "fix a (typo|mistake) (in my question|)"],
     ["what does /edit do?", "what is /edit (for|)?", "which command edits (a turn|my message)?"]),
    ("/continue lets the model go on with its last answer.",
     ["(continue|finish|extend) (the|your) (last|) answer", "(let|make) you (go on|continue)", "make the answer longer"],
     ["what does /continue do?", "what is /continue (for|)?"]),
    ("/set NAME VALUE changes a setting, for example /set temp 0.5",
     ["(change|set) (a setting|settings|an option|options) (in the chat|while chatting|here|)",
      "change the temperature (in the chat|while chatting)"],
     ["what does /set do?", "what is /set (for|)?", "which command changes (a setting|settings)?"]),
    ("/show tells about the model, settings, system, context, template or stats.",
     ["(see|show|view|list|read) (the|my|current) (settings|template)", "(see|find out) which model is (loaded|running)"],
     ["what does /show do?", "what is /show (for|)?", "which model is (loaded|running)?", "what does /show model do?"]),
    ("/context shows the tokens used, for each turn, and how many are left.",
     ["(see|know|find out|check) how (full the context is|many tokens are (left|used))", "count the tokens of this chat"],
     ["what does /context do?", "what is /context (for|)?", "how many tokens are left?", "how full is the context?",
      "how much context is left?"]),
    ("/why shows the alternatives and their probabilities at each token of the last answer.",
     ["see (why you said that|the probabilities|the alternatives)", "know why you (said|wrote|chose) that"],
     ["what does /why do?", "what is /why (for|)?", "which command shows (the probabilities|alternatives)?"]),
    ("/stats shows the speed: tokens read and written per second.",
     ["(see|measure|check|know) (the speed|how fast you are|the tokens per second)"],
     ["what does /stats do?", "what is /stats (for|)?", "how fast are you?", "what does --stats do?", "what is your speed?"]),
    ("/fork NAME copies the conversation under a new name.",
     [f"(fork|copy|branch|duplicate) {CHAT}"],
     ["what does /fork do?", "what is /fork (for|)?"]),
    ("/read FILE puts a file into your message.",
     ["(give|show|send|read) you a file (in the chat|)", "(read|paste|insert) a file (in the chat|into the chat)",
      "ask about a file"],
     ["what does /read do?", "what is /read (for|)?", "can you read (files|a file)?"]),
    ("/help lists the commands.",
     ["(see|list|show|find) (all|the|all the) commands", "get help"],
     ["what does /help do?", "what is /help (for|)?", "(what|which) commands (are there|exist|do you know|can I use)?",
      "where is the help?", "what does /? do?", "help"]),
    ("Type \"\"\" before and after several lines, or end a line with \\, or press Alt-Enter.",
     ["(type|enter|write|send) (several|many|multiple|two|more) lines", "write a (long|multi-line) message",
      "(start|insert|begin) a new line"],
     ["can I type (several|more than one) lines?", "how do multi-line messages work?", "what does Alt-Enter do?"]),
    ("Press Ctrl-C: hokku stops and keeps the partial answer.",
     ["(stop|interrupt|cancel|abort|break off) (an|the|your|a long) answer", "(stop|interrupt) (you|the model) (while talking|)",
      "make you stop talking"],
     ["what does Ctrl-C do?", "what happens when I press Ctrl-C?", "which key stops (the|an) answer?"]),
    ("Pipe it in: cat notes.txt | hokku \"Summarise this:\"",
     ["(pipe|send|feed) (text|a file|input|something) (into|to) hokku", "use hokku in a pipe", "use (pipes|a pipe)",
      "summarise a file (from the shell|)", "use hokku in a (script|shell script)"],
     ["does hokku (work|go) (in|with) pipes?", "can hokku read stdin?", "does hokku read standard input?"]),
    ("Give the prompt as an argument: hokku \"Write a haiku\"",
     ["ask (one|a single|just one) question (from the shell|)", "get one answer and (leave|exit|quit)",
      "(run|use) hokku (once|for one answer|without a chat)", "give a prompt (on the command line|)"],
     ["what does -p do?", "what is -p (for|)?", "what does --prompt do?", "where does the prompt go?"]),
    ("-f FILE reads the prompt from a file.",
     ["(read|take|load) (the|a) prompt from a file", "use a prompt file"],
     ["what does -f do?", "what is -f (for|)?", "what does --file do?"]),
    ("--device cuda runs on the GPU, --device cpu on the processor; auto picks by itself.",
     ["(use|run on|choose|pick|select|force) (the|my|a) (GPU|graphics card|CPU|processor|device)",
      "(run|use) hokku (without a GPU|on the CPU|on the GPU)", "choose between GPU and CPU", "run on the second GPU"],
     ["what does --device do?", "what is --device (for|)?", "do I need a GPU?", "(does|can) hokku run without a GPU?",
      "does it (need|use) a GPU?", "can you run on the CPU?"]),
    ("-t N sets the number of CPU threads.",
     ["(set|change|choose) (the number of|how many|the) threads", "use more (cores|threads)"],
     ["what does -t do?", "what is -t (for|)?", "what does --threads do?", "which option sets the threads?"]),
    ("--json prints one object: text, token ids, finish reason, timings and cached tokens.",
     ["(get|print|make) JSON (output|)", "get the token ids (of an answer|)", "use the output in a program"],
     ["what does --json do?", "what is --json (for|)?", "can hokku print JSON?"]),
    ("-q is quiet: it leaves out the banner and other decoration.",
     ["(hide|turn off|remove) the banner", "make hokku (quiet|silent)"],
     ["what does -q do?", "what is -q (for|)?", "what does --quiet do?"]),
    ("-v is verbose: it says more, for example the random seed.",
     ["see (more details|the random seed|which seed was used)", "make hokku (verbose|say more)"],
     ["what does -v do?", "what is -v (for|)?", "which seed was used?"]),
    ("--lines makes each line of stdin its own prompt; the answers come in order.",
     ["(ask|run|answer) many (prompts|questions) (at once|from a file|)", "(treat|use) each line as (a|its own) prompt"],
     ["what does --lines do?", "what is --lines (for|)?"]),
    ("--turns makes each line of stdin the next turn of one conversation.",
     ["(script|play|feed) a whole conversation (from stdin|)", "give all turns (on stdin|in a file)"],
     ["what does --turns do?", "what is --turns (for|)?"]),
    ("--dry-run prints the plan: bytes for weights, KV cache and scratch, and the largest context that fits.",
     ["(see|know|check|find out) (how much memory (is needed|it needs|a model needs)|if a model fits)", "plan the memory"],
     ["what does --dry-run do?", "what is --dry-run (for|)?", "how much memory (does it|do I) need?", "will (it|the model) fit (in memory|)?"]),
    ("-b N sets the batch size: how many prompt tokens are read at once.",
     ["(set|change) the batch size"], ["what does -b do?", "what is -b (for|)?", "what does --batch-size do?"]),
    ("-ctk and -ctv set the type of the KV cache: f16 or q8_0.",
     ["(make the KV cache smaller|quantise the KV cache|change the cache type)"],
     ["what does -ctk do?", "what does -ctv do?", "what is -ctk (for|)?", "what is -ctv (for|)?"]),
    ("-r TEXT stops the answer at that text; it can be given several times.",
     ["stop at a (word|text)", "(set|give) a stop (word|text|string)"],
     ["what does -r do?", "what is -r (for|)?", "what does --reverse-prompt do?"]),
    ("--top-k N keeps only the N likeliest tokens; the default is 40.",
     ["keep only the likeliest tokens"], ["what does --top-k do?", "what is --top-k (for|)?", "what is top-k?"]),
    ("--top-p P keeps the likeliest tokens that sum to P; the default is 0.95.",
     ["use nucleus sampling"], ["what does --top-p do?", "what is --top-p (for|)?", "what is top-p?"]),
    ("--min-p P drops tokens less likely than P times the best; the default is 0.05.",
     ["drop unlikely tokens"], ["what does --min-p do?", "what is --min-p (for|)?", "what is min-p?"]),
    ("--repeat-penalty N makes repeated tokens less likely; 1 means off.",
     ["(stop|avoid|reduce|prevent) repetition", "(stop|keep) (the model|you) from repeating (itself|yourself)"],
     ["what does --repeat-penalty do?", "what is --repeat-penalty (for|)?", "why do you repeat yourself?"]),
    ("--samplers LIST sets which samplers run, and in which order.",
     ["change the order of the samplers"], ["what does --samplers do?", "what is --samplers (for|)?"]),
    ("-l ID+N or ID-N makes a token more or less likely.",
     ["(ban|forbid|favor) a token", "make a token more likely"], ["what does -l do?", "what is --logit-bias (for|)?", "what is -l (for|)?"]),
    ("--ignore-eos goes on when the model wants to end.",
     ["ignore the end of the answer"], ["what does --ignore-eos do?", "what is --ignore-eos (for|)?"]),
    ("--overflow says what happens when the context is full: error, drop or shift.",
     ["go on when the context is full"],
     ["what does --overflow do?", "what is --overflow (for|)?", "what happens when the context is full?"]),
    ("--chat-template NAME or --chat-template-file FILE replaces the model's chat template.",
     ["(change|set|replace|use another) (the|) chat template"],
     ["what does --chat-template do?", "what is --chat-template (for|)?", "what is --chat-template-file (for|)?"]),
    ("-no-cnv turns the chat template off; the text goes to the model as it is.",
     ["(turn off|disable) the chat (template|mode)", "(complete|continue) plain text"],
     ["what does -no-cnv do?", "what is -no-cnv (for|)?", "what does -cnv do?"]),
    ("-st answers a single turn and leaves.",
     [], ["what does -st do?", "what is -st (for|)?", "what does --single-turn do?"]),
    ("--prefill TEXT gives the start of the answer.",
     ["(give|write|set) the (start|beginning) of the answer", "begin the answer for you"],
     ["what does --prefill do?", "what is --prefill (for|)?"]),
    ("--think on, off or hide says whether thinking is used and shown.",
     ["(hide|show|turn off|turn on) (the|) thinking"],
     ["what does --think do?", "what does /think do?", "what is --think (for|)?", "what is /think (for|)?"]),
    ("--logprobs N adds the N likeliest tokens and their log-probabilities.",
     ["get the log-probabilities"], ["what does --logprobs do?", "what is --logprobs (for|)?"]),
    ("--color auto, always or never; NO_COLOR turns colour off too.",
     ["(turn off|disable|change) (the|) (colors|colours|color)"], ["what does --color do?", "what is --color (for|)?", "what is NO_COLOR (for|)?"]),
    ("--no-history keeps no history of what you type.",
     ["keep no history", "turn off the history"], ["what does --no-history do?", "what is --no-history (for|)?"]),
    ("The history is kept in $XDG_STATE_HOME/hokku/history; Ctrl-R searches it.",
     ["(search|find|see) (my|the) (history|old inputs)"], ["where is (the|my) history?", "what does Ctrl-R do?"]),
    ("Sessions and the history are kept in $XDG_STATE_HOME/hokku.",
     [], ["where are (the|my|) sessions (kept|stored|saved)?", "where does hokku (save|keep) (sessions|chats)?"]),
    ("Models are kept in $XDG_CACHE_HOME/hokku.",
     [], ["where are (the|my|downloaded|) models (kept|stored|saved)?", "where does hokku (save|keep) models?",
          "where is the cache?"]),
    ("The config file is $XDG_CONFIG_HOME/hokku/config: long option names, one per line.",
     ["(set|keep|change) (defaults|default options|options for good)", "use a config file", "configure hokku"],
     ["where is the (config|configuration) (file|)?", "is there a config file?", "what goes into the config file?"]),
    ("Tab completes commands, settings, file and session names.",
     ["complete (a command|names)"], ["what does Tab do?", "is there (tab |)completion?"]),
    ("The tools are inspect, tokenize, render, score, perplexity, bench, replay and pull.",
     ["see the tools"], ["(what|which) tools (are there|exist|does hokku have)?"]),
    ("hokku inspect FILE shows what is in a model file.",
     ["(look into|inspect|examine) a (model|gguf) file", "see (the metadata|what is in a model|the tensors)"],
     ["what does inspect do?", "what is hokku inspect (for|)?", "what does hokku inspect do?"]),
    ("hokku tokenize -m MODEL prints the token ids of a text.",
     ["(tokenize|turn into tokens) (a|some) text", "(see|get|count) the tokens of a text"],
     ["what does tokenize do?", "what is hokku tokenize (for|)?", "what does hokku tokenize do?"]),
    ("hokku render prints the prompt that the chat template makes.",
     ["(see|test) (the rendered prompt|what the template makes)"],
     ["what does render do?", "what is hokku render (for|)?", "what does hokku render do?"]),
    ("hokku bench -m MODEL measures the speed.",
     ["(benchmark|bench) (a model|hokku)", "run a benchmark"], ["what does bench do?", "what is hokku bench (for|)?",
                                                               "what does hokku bench do?"]),
    ("hokku perplexity -m MODEL -f FILE measures how well a model predicts a text.",
     ["(measure|compute) (the|) perplexity"], ["what does perplexity do?", "what is hokku perplexity (for|)?"]),
    ("hokku score -m MODEL FILE prints the log-probability of every token.",
     [], ["what does score do?", "what is hokku score (for|)?", "what does hokku score do?"]),
    ("Exit code 0 means done.", [], ["what does exit code 0 mean?", "what is exit code 0?"]),
    ("Exit code 1 means a failure while running.", [], ["what does exit code 1 mean?", "what is exit code 1?"]),
    ("Exit code 2 means wrong usage.", [], ["what does exit code 2 mean?", "what is exit code 2?"]),
    ("Exit code 3 means that the model cannot be loaded.", [], ["what does exit code 3 mean?", "what is exit code 3?"]),
    ("Exit code 4 means not enough memory.", [], ["what does exit code 4 mean?", "what is exit code 4?"]),
    ("Exit code 5 means that the prompt does not fit the context.", [], ["what does exit code 5 mean?", "what is exit code 5?"]),
    ("A hokku is the opening verse with which poets begin writing in turns.",
     [], ["what does (the word|the name|) hokku mean?", "where does the name (hokku|) come from?",
          "why is it called hokku?", "what is (a|the meaning of) hokku?", "why the name hokku?"]),
    ("hokku is a terminal program that loads a GGUF model and answers you.",
     [], ["what is hokku?", "what does hokku do?", "what (kind of|) program is (this|hokku)?", "what is this (program|)?",
          "tell me about hokku", "explain hokku", "what am I talking to?", "describe hokku"]),
    ("A GGUF file holds a language model: its weights, its tokenizer and its chat template.",
     [], ["what is (a|) gguf (file|)?", "what is GGUF?", "what is in a gguf file?", "what does GGUF mean?",
          "which (file |)format (does hokku use|is used)?"]),
    ("The KV cache keeps what was read, so that each turn reads only its new tokens.",
     [], ["what is the KV cache?", "what is (the|a) cache for?", "does every turn read everything again?",
          "why is the second turn (so |)fast?"]),
    ("A haiku is a poem of three lines with five, seven and five syllables.",
     [], ["what is a haiku?", "explain (what a haiku is|haiku)", "how many (syllables|lines) does a haiku have?",
          "what makes a haiku?"]),
    ("A token is a piece of text, often a word or a part of one.",
     [], ["what is a token?", "what are tokens?", "explain tokens"]),
    ("hokku is free software under the MIT licence.",
     [], ["(what|which) (licence|license) does hokku have?", "is hokku (free|open source)?", "what is the (licence|license)?",
          "may I use hokku (for free|at work|)?"]),
]

HOW_FRAMES = [
    "how do I {c}?", "how can I {c}?", "how to {c}", "how to {c}?", "what is the way to {c}?", "I want to {c}.", "can I {c}?",
    "is there a way to {c}?", "tell me how to {c}.", "which (command|option) do I need to {c}?",
    "what do I type to {c}?", "{c}?", "I need to {c}.", "explain how to {c}.", "what should I do to {c}?",
    "help me {c}.", "how does one {c}?", "how would I {c}?", "I would like to {c}.", "what must I do to {c}?",
    "in hokku, how do I {c}?", "how do I {c} in hokku?", "how do you {c}?", "what is the command to {c}?",
    "is it possible to {c}?", "please tell me how to {c}.", "I don't know how to {c}.", "how could I {c}?",
    "can you tell me how to {c}?", "can you explain how to {c}?", "show me how to {c}.", "how do I {c} here?",
    "what's the way to {c}?", "what do I have to do to {c}?", "where can I {c}?",
]
ASK_FRAMES = ["{q}", "{q}", "{q}", "{q}", "tell me: {q}", "a question: {q}", "please tell me, {q}", "and {q}", "hokku: {q}", "so, {q}",
              "I wonder, {q}", "one question: {q}"]


def expand(text, rng):
    """Choose one alternative of every innermost "(a|b)", then the next ones out."""
    while "(" in text:
        close = text.index(")")
        start = text.rindex("(", 0, close)
        if "|" not in text[start:close]:
            raise ValueError("no choice in " + text)
        text = text[:start] + rng.choice(text[start + 1:close].split("|")) + text[close + 1:]
    return " ".join(text.split()).replace(" ?", "?").replace(" .", ".")


def loosen(text, rng):
    """The small carelessness of people who type."""
    r = rng.random()
    if r < 0.45 and text[0].islower():
        text = text[0].upper() + text[1:]
    elif r < 0.55:
        text = text.lower() if not any(c in text for c in "-$/\"") else text
    if rng.random() < 0.2 and text[-1] in "?.":
        text = text[:-1]
    if rng.random() < 0.04 and len(text) > 12:
        i = rng.randrange(3, len(text) - 2)
        if text[i].isalpha() and text[i + 1].isalpha():
            text = text[:i] + text[i + 1] + text[i] + text[i + 2:]
    if rng.random() < 0.05:
        text = rng.choice(["please, ", "hey, ", "hi, ", "ok, ", "hm, "]) + text
    return text


def ask(rng):
    """One question and the answer of the manual."""
    answer, hows, questions = rng.choice(FACTS)
    n = len(hows) * 2 + len(questions)
    if hows and rng.randrange(n) < len(hows) * 2:
        text = expand(rng.choice(HOW_FRAMES), rng).replace("{c}", expand(rng.choice(hows), rng))
    else:
        q = expand(rng.choice(questions), rng)
        if q.startswith("what does ") and q.endswith(" do?") and rng.random() < 0.35:
            thing = q[len("what does "):-len(" do?")]
            q = rng.choice(["what is {} for?", "what is {}?", "explain {}", "{}?", "tell me about {}", "what's {}?",
                            "why would I use {}?", "when do I use {}?", "what does {} mean?", "what happens with {}?",
                            "what is the use of {}?", "what is {} good for?", "describe {}",
                            "what does the option {} do?" if thing.startswith("-") else "what does {} do?"]).format(thing)
        text = rng.choice(ASK_FRAMES).replace("{q}", q)
    text = loosen(text, rng)
    return ask(rng) if plain(text) in HELD_OUT else (text, answer)


if __name__ == "__main__":
    import random
    r = random.Random(3)
    for _ in range(30):
        print(*ask(r), sep="\n    ")
    print(len(FACTS))
