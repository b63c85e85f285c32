"""What a person may ask about hokku, fact by fact. Read by manual.py; true to the command line's contract.

    = the answer
    @ the fact's names: options, commands, keys, words ("what does @ do?")
    + what a person wants to do, from a verb on ("how do I + ?")
    ? whole questions, complaints, situations, search words

" ; " stands between phrases, "(a|b)" is a choice, "(a|)" an optional word, and <word> one of the
MACROS. A wording belongs to one fact only; where two could claim it:

    opening an old conversation is /load, going on with it is --session, keeping this one /save;
    a mistake in one's words is /edit, a message better never sent /undo, a bad answer /retry,
    an answer cut short /continue; "the same answer again" is the seed;
    stopping an answer now is Ctrl-C, answers too long -n, at a word -r, the program itself /bye;
    a prompt in a file is -f, a file shown in the chat /read, text from another program the pipe;
    "in the chat" makes a setting /set and a system prompt /system, else it is the option;
    your speed is /stats, that of a machine or a model file hokku bench;
    tokens of this chat are /context, of a text hokku tokenize, of an answer --json.
"""

MACROS = {
    "model": "(a|the|my|another|some|my own|a bigger|a different) (model|gguf|gguf file|GGUF model|language model|model file)",
    "chat": "(the|this|my|our|a) (chat|conversation|session|talk|dialogue)",
    "ans": "(answer|reply|response|output)",
    "bot": "(you|the model|hokku)",
    "prog": "(hokku|the program|this program|the tool|the app|the programme)",
    "opt": "(option|flag|switch|parameter|command line option)",
    "set": "(set|change|choose|adjust|pick|specify|give|configure|modify|control)",
    "here": "(in the chat|while chatting|during the chat|in the middle of the chat|inside the chat|without leaving the chat|without a restart|in mid-conversation)",
    "shell": "(from the shell|on the command line|from the command line|in the terminal|from the terminal|in my shell)",
    "code": "(exit code|exit code|exit status|return code|status code|exit value|error code|exit|status|code|return value|error)",
    "code1": "(exit code|exit status|return code|code|status|error code)",
}

FACTS = r'''
= Start hokku with -m and the file: hokku -m model.gguf
@ (-m|--model) ; (-m|--model) ; (-m|--model) (FILE|model.gguf|my.gguf) ; hokku -m
+ (load|open|use|run|start|choose|pick|select|try|launch) <model> ; run <prog> with <model> ; (point|tell|direct) hokku (to|at) (a|my) (model|file)
+ load a model ; switch (to another model|models) ; (use|try|load) (a|another|some other) (network|brain|LLM)
+ (use|run) (the|a) model (on|from) my (disk|machine|computer|drive)
+ (use|load|open) a (file|model) (that|which) I (downloaded|have|already have|have on disk) ; (change|swap|exchange|replace) the model
+ (give|pass|hand) <prog> (a|my) (model|gguf file)
+ start <prog> with (a|my|another|a certain) (gguf|model) ; (specify|name|state|indicate|say) (which|what) model (to use|to load|to run|I want)
+ (talk|chat) (to|with) (a bigger|a smarter|a better|another|a different) model
+ use something (bigger|smarter|better) than the built-in model ; get hokku (to use|to load|to run) my (model|file)
+ run (Llama|Qwen|Mistral|a 7B model) ; put (another|my own) model in
+ (choose|pick|select) (which|what) model (to run|to use|answers|runs) ; (enter|give|type) the (path|name) of (the|a|my) model
+ start (another|a different) model
? (which|what) <opt> (loads|selects|opens|chooses|takes|picks) (a|the|my) (model|model file|gguf file)?
? where do I (give|put|name|write|enter|specify) the (model|model file|path of the model|gguf)? ; how do you load models?
? how is a model (loaded|chosen)? ; how can a model (be loaded|be chosen)?
? I have a (gguf file|GGUF|model|model file) on my (disk|computer|machine|drive), (what now|now what|how do I use it|how do I run it)?
? You are too (small|stupid|weak|simple), I want a (bigger|better|smarter) model.
? I (downloaded|got|have) a model, how do I (use|start|open|run|load) it?
? can hokku (load|run|use|open) (other|my own|different|bigger|another|any) (models|model)? ; can I (bring|use) my own (model|gguf)?
? (does|will) it (work|run) with (other|my own|bigger) models?
? where's the (switch|option|flag|parameter) for the model? ; load model ; model file ; use own model ; change model
? (which|what) (switch|option|flag|parameter) is for the model? ; I'd (like|prefer) (a bigger|another|a different|a better) model.
? how does <prog> know which model to (load|use|run)? ; I don't want the built-in model. ; what do I type to run (model.gguf|my model|a gguf file)?
? where does the model file go? ; how do I tell it which model to (use|load)? ; is there a (flag|switch) for the model file?

= Use -hf USER/REPO, for example hokku -hf USER/REPO:Q4_K_M; the file is kept in the cache.
@ (-hf|--hf-repo) ; (-hf|--hf-repo) ; (-hf|--hf-repo) (USER/REPO|USER/REPO:Q4_K_M)
+ (download|get|fetch|pull|grab|obtain) (a|some|another|a new|the) (model|gguf|gguf file|GGUF model) (from the hub|from Hugging Face|from the internet|from the net|from the web|online|)
+ use a model (from|on) (the hub|Hugging Face|the internet|the web)
+ get (more|other|bigger|new|better|additional|further) models ; (find|get|obtain) (a|another|a bigger|a better) model if I have none
+ (load|run|start) a model (straight|directly|right|) from (Hugging Face|the hub|the internet|the web)
+ (have|let|make) hokku (download|fetch|get) (a model|the model|the file) (for me|by itself|) ; (install|acquire) (a|another|a new) model
+ (name|give|use) a (Hugging Face|hub) (repo|repository) ; get a model (without downloading it by hand|without a browser)
+ (download|fetch|get) a (certain|particular|specific) quantisation ; (choose|pick) the (quantisation|quantization|quant) (of a download|to download)
+ (download|get|fetch) weights
? where (can|do|could) I (get|find|download|obtain) (models|a model|more models|other models|bigger models)?
? can (hokku|it|you|the program) (download|fetch|get|pull) (models|a model|files) (by itself|for me|from Hugging Face|from the internet|)?
? where do (models|the models|gguf files) come from?
? I (have no|don't have a|haven't got a|don't have any) (model|model file|gguf|gguf file), where do I get one?
? does (hokku|it) (know|work with|support) (Hugging Face|the hub)? ; (which|what) <opt> (downloads|fetches|gets) (a model|models)?
? (how|where) are models downloaded?
? I need a (model|bigger model) but (have|own) none. ; is there a (download|downloader) (for models|)? ; download model ; hugging face
? huggingface models ; get models ; do I have to download (models|a model) (myself|by hand)? ; how can a model be (downloaded|fetched)?
? where's the (switch|option|flag) for (downloads|downloading|Hugging Face)? ; can I use (Hugging Face|the hub) (with hokku|)?
? I found a model on (Hugging Face|the hub), how do I (use|get|run) it? ; can models be (downloaded|fetched) (automatically|)?

= Without -m hokku takes $HOKKU_MODEL if it is set, else its small built-in model.
@ (HOKKU_MODEL|$HOKKU_MODEL) ; (HOKKU_MODEL|$HOKKU_MODEL) ; the built-in model ; the default model
+ (run|start|use|launch|call) <prog> without (a model|-m|giving a model|any model|naming a model|a model file)
+ (set|choose|change|define|pick|have) (a|the|my) (default|standard|usual|preset) model
+ (use|run|start) the (built-in|small|included|bundled|default) model
+ avoid (typing|giving|writing) (-m|the model) (every time|each time|always|again and again) ; (always|) use the same model without (typing|giving) -m
+ leave out (-m|the model) ; make (a model|my model|one model) the default
+ (omit|skip|drop) the -m (option|flag|) ; (set|use) (an|the) environment variable for the model ; (talk|chat) without (a|any) model file
+ start without (a|any) (file|model file|gguf)
? (which|what) model (is used|do you use|runs|is loaded|is taken|is chosen|will run|answers|does hokku take|does it take) (without -m|by default|if I give none|if I don't give one|when I name none|if no model is given|when I start hokku without options|when I don't say which)?
? what is (the default|hokku's default|your default|the standard) model?
? what (happens|does hokku do|do I get) (without -m|without a model|if I leave out -m|if I forget -m|if I don't give a model|when there is no -m|if no model is given)?
? do I (need|have to have|require) a (model|model file|gguf file) (to start|at all|)?
? (does|is) (hokku|it) (come|ship) with a model? ; is there a (built-in|default|bundled|small|standard) model?
? is a model (included|built in|required|necessary|needed)?
? (does|can|will) (hokku|it|the program) (work|run|start) without (a model|-m|a gguf file|any file)?
? I don't want to (type|write|give) (-m|the model|the model's path) (every time|each time). ; where does the (default model|built-in model) come from?
? default model ; no model ; builtin model ; without a model ; (which|what) (environment |)variable (names|sets|gives|holds) the model?
? must I (give|name|specify|have) a model? ; is -m (required|mandatory|optional|necessary|needed)? ; can I leave out (-m|the model)?
? I (started|ran) (hokku|it) without -m, which model is (that|this|it)? ; is there a variable for the (default|usual) model?

= Type /bye, /exit or /quit, or press Ctrl-D.
@ (/bye|/exit|/quit) ; (/bye|/exit|/quit) ; (Ctrl-D|Control-D|Ctrl+D|ctrl d|^D)
+ (quit|exit|leave|close|end|terminate|shut down|finish) (<prog>|the session|the prompt|) ; stop <prog>
+ (get|come) out (of here|of hokku|of this|of the program|) ; (leave|end|finish|close|quit) (this|the|our) (conversation|chat|talk|dialogue)
+ quit ; exit ; leave ; (go|get) back to (the shell|my shell|the command line|the terminal|bash) ; (close|shut) (hokku|this|it|the window|the app)
+ (say|tell you) goodbye ; log (out|off) ; be done (here|with this|for today)
+ (return|get back) to (the|my) (shell|prompt of the shell|terminal|command line) ; (end|finish) (it|this|the whole thing|the app)
+ (make|let) hokku (exit|quit|end|close) ; (escape|get away) from (here|hokku|this) ; (kill|turn off|switch off) (hokku|the program|the app)
? (which|what) (command|key) (ends|leaves|quits|closes|exits) (hokku|the chat|the program|the conversation|this|it)?
? (where is|where's|which way to) the (exit|way out|door|exit command)? ; how to get out?
? how is hokku (ended|closed)? ; how can hokku (be closed|be stopped|be left)?
? I (want|need|would like|have) to (go|leave|stop now|go home). ; let me out ; how do I leave?
? I'm (done|finished|stuck here), how do I (get out|leave|quit|close this)? ; How does one (leave|quit) (this|this thing|here)?
? is there (an exit|a quit|a way out|an exit command|a quit command)?
? I can't (get out|leave|exit|quit|close it). ; I don't know how to (leave|get out). ; quit hokku ; exit hokku ; leaving ; exiting
? closing the program ; what do I (press|type|enter|hit) to (leave|quit|exit|get out|close it|end)?
? I'm (done|finished) (for today|here|), (goodbye how|how do I close)?
? how does this (thing|program|app) (end|close)? ; I'd like to go back to (my|the) shell. ; does (Ctrl-D|Ctrl+D) (leave|quit|exit)?
? can I (leave|quit|exit) with a key? ; enough for today, how do I (quit|leave|exit|close)? ; I want out

= /undo takes back the last turn; /undo 2 takes back two.
@ /undo ; /undo ; /undo (2|3|N)
+ (undo|take back|revert|remove|delete|unsay|cancel|drop|withdraw|retract|erase|unsend|roll back|reverse) (the|my|our) (last|latest|previous|most recent) (turn|message|question|thing|step|exchange|round|entry)
+ undo ; undo (a turn|something|that|this|it|the last two turns|two turns|several turns|what I just did)
+ go back (one turn|a step|one step|two turns|a turn|in the conversation)
+ (take back|withdraw|retract|unsay|unsend) (what I said|what I just said|what I wrote|what I just sent|that|my words)
+ (make|let) you forget (the last thing|my last message|what I just said|the last turn|that last question)
+ (step|move|go|jump) back (one|a) (turn|message) ; (delete|remove|drop|forget) (only|just|) the last (turn|message|exchange|two turns|few turns)
+ remove (the last question and its answer|what I just asked) ; return to (the turn before|before my last message|an earlier point)
+ (get rid of|erase|scratch) (the|my) last (message|turn|exchange) ; pretend I (never|did not) (said|ask|send) that
? (which|what) (command|one) (undoes|takes back|removes|deletes|reverts) (a turn|the last turn|my last message)?
? is there (an undo|an undo command|some kind of undo|undo) (here|)?
? can I (undo|take back|revert|unsend|withdraw) (something|a turn|that|my last message|what I said)?
? I didn't mean (to say that|to send that|that|to ask that). ; Oops, (I sent that too early|wrong question|I pressed Enter too early).
? I (sent|asked|said|wrote) (the wrong thing|something stupid|nonsense) (by accident|by mistake|), (can I take it back|how do I take it back|can that be undone)?
? I want my last (message|turn|question) (gone|removed|deleted|undone).
? can (a turn|the last turn|the last message|that) be (undone|removed|taken back|deleted|reverted)?
? (I'd like|I want) to go back (one turn|a turn|one step). ; undo last turn ; undo last message ; delete last message
? I (pressed|hit) (Enter|return) (too early|by accident|by mistake), can I take that back? ; how can a turn be (taken back|undone|removed)?
? forget (what I just said|the last thing I said|that last message), how? ; (how many|can I undo several|can I undo two) turns (can I undo|at once)?
? please ignore (my last message|what I just wrote), how can I (remove|delete) it?
? what if I (regret|want to take back) (a message|my last message|a question)?
? the last (turn|message|exchange) was a mistake, how do I (remove|delete|drop) it?

= /redo brings back what /undo removed.
@ /redo
+ redo (a turn|what I undid|the undone turn|an undone turn|the removed turn|) ; (undo|reverse|revert|cancel|take back) (an|the|my|the last) undo
+ (bring|get|have|put) back (an undone turn|what I undid|the turn I undid|what was undone|what undo removed|the undone message)
+ (restore|recover|reinstate|return) (an undone turn|what I undid|what undo (removed|took)|the undone turn|a turn that was undone|the turn that I took back|a turn after undo)
+ (get|have|bring) (it|the turn|my turn|my message) back after (an undo|undo|/undo|undoing)
+ (go|move|step) forward again (after an undo|after /undo) ; (recover|rescue) from (a wrong undo|/undo|too many undos)
+ do the opposite of (undo|/undo)
? is there (a redo|a redo command|redo|the opposite of undo|an opposite of /undo) (here|)?
? I (undid|took back) (too much|too many turns|the wrong turn|a turn by accident|one turn too many), (can I get it back|how do I get it back|what now)?
? I (didn't mean|did not want) to undo (that|it).
? I typed /undo by (mistake|accident). ; can (an undo|undoing|/undo) be (undone|reversed|reverted|taken back)?
? (which|what) command (brings back|restores) (an undone turn|what /undo removed|what was undone)?
? is an undone turn (lost|gone) (for good|forever|)?
? redo ; redo last turn ; undo the undo ; after /undo, can I (go forward again|get the turn back|have it back)? ; I want the undone turn back.
? what's the (opposite|reverse) of /undo? ; how can an undone turn be (restored|brought back)? ; /undo went too far.
? does (hokku|it) have (redo|a redo)? ; what (brings|gets) back (an undone turn|what I undid)? ; I changed my mind about the undo.
? can I bring back what I undid? ; how does redo work?

= /save NAME saves the conversation; /load NAME brings it back.
@ /save ; /save (NAME|poems|monday)
+ (save|store|keep|write down|preserve|file away|record|archive|back up) <chat> (for later|to disk|on disk|in a file|under a name|before I leave|)
+ keep (what we said|what we talked about|our words|all this|this) (for later|)
+ save ; (store|keep|save) (everything we said|what we wrote|this talk|all of this|our messages|this dialogue|my work)
+ (write|put|save) <chat> (to disk|to a file|on my disk) ; save (this|it) (under a name|with a name|for later|for tomorrow)
+ (make|keep) a (saved copy|record|backup) of <chat> ; not lose <chat> ; keep <chat> from (being lost|getting lost)
+ (hold on to|remember) <chat> (for later|)
? (which|what) command (saves|stores|keeps|writes) (the|a|this|our) (chat|conversation|talk|session)?
? can you (save|store|keep|record) (this|our chat|our conversation|this conversation|what we said|this talk)?
? is there a (save|save command|way of saving)? ; save chat ; save conversation ; save this
? how can (a|the|this) (chat|conversation) be (saved|stored|kept|preserved)?
? I (want|would like|need) (this|this chat|this conversation|our talk) (saved|kept|stored).
? can I (save|keep|store) (this|it|the chat|what we said) (for later|)? ; saving a conversation
? I don't want to lose (this|this chat|our conversation|what we wrote|it).
? This is a (good|nice) conversation, (can I keep it|how do I keep it|I want to keep it).
? will (this|our) (chat|conversation) be (lost|gone) (when I leave|if I quit)?
? can (this|the) (chat|conversation|talk) be (saved|kept|stored) (by hand|)? ; how is a conversation saved?
? is it possible to save? ; does (hokku|it) (have|know) (a save command|saving)?
? I (must|need to|have to) leave but want to keep this (chat|conversation|talk). ; what do I type to save (this|the chat|it)?
? under which name can I save (this|the conversation)?

= /load NAME opens a saved conversation; /sessions lists them.
@ /load ; /load (NAME|poems|monday) ; /sessions
+ (load|open|restore|reopen|bring back|retrieve|reload|recall|fetch|get back) (a saved|an old|an earlier|my saved|the last|a previous|an older|yesterday's|a stored|my old|the saved) (chat|conversation|session|talk|dialogue)
+ (see|list|show|find|view|display|look at|browse) (my|all|the|all my|all the|the list of|my list of) (saved|old|stored|earlier|previous) (sessions|chats|conversations|talks)
+ (see|list|show|view|display) (the sessions|my sessions|all sessions|saved sessions|which sessions there are)
+ (return|go back|get back) to (a saved|an old|an earlier|yesterday's|my old|a stored) (chat|conversation|session)
+ (open|load|bring back) (what I saved|what we saved|a chat that I saved|something I saved before)
+ (find|read) (an old|an earlier|my old) (chat|conversation) again
+ (find out|know|see) (which|what) (sessions|chats|conversations) (I have|are saved|exist|I saved|there are) ; load
? where are my (saved|old|earlier|stored|previous) (chats|sessions|conversations|talks)?
? (which|what) (sessions|chats|conversations) (are there|do I have|did I save|have I saved|exist|are saved)?
? (which|what) command (loads|opens|brings back|restores) (a|a saved|an old) (chat|conversation|session)?
? (which|what) command (lists|shows) (the|my|all) (sessions|saved chats|saved conversations)?
? I saved a (chat|conversation) (yesterday|last week|before|earlier), how do I (open|get|load|see) it (again|)?
? can I (open|load|get back|see|reopen) (an old|a saved|an earlier|yesterday's) (chat|conversation)?
? I (forgot|don't remember|don't know) the name of my (session|saved chat|saved conversation).
? is there a list of (my|all|the) (sessions|saved chats|saved conversations|chats)? ; load chat ; list sessions ; saved conversations ; old chats
? load a session ; list of sessions
? how can a saved (chat|conversation) be (opened|loaded|restored|brought back)?
? I want (my old|my saved|the saved|yesterday's) (chat|conversation) back. ; where did my saved (chat|conversation|talk) go?
? after /save, how do I get it back? ; what did I save? ; do you (have|keep) a list of (chats|sessions)?

= --session NAME resumes that conversation or begins it, and saves it at every turn.
@ --session ; --session (NAME|work|poems) ; a session
+ (resume|continue|go on with|carry on with|pick up|take up|proceed with) <chat> (later|tomorrow|after a restart|next time|another day|the next day|when I come back|where I left off|where we stopped)
+ save (every turn|automatically|each turn|all the time|by itself|after every turn|without thinking about it)
+ resume a session (from the shell|at start|) ; start with a saved (session|chat|conversation)
+ (start|begin|open) (a named session|a session|a conversation with a name)
+ (have|get) <chat> saved (automatically|at every turn|by itself|all the time|while I type|as I go) ; autosave (<chat>|)
+ (keep|make) <chat> (alive|persistent|across restarts|over several days)
+ resume (yesterday's|an earlier|the previous|my last) (chat|conversation|session)
+ (continue|carry on|go on) (where I left off|where we stopped|where I stopped yesterday|with yesterday's conversation|tomorrow)
+ make hokku remember (me|our conversation|what we said) (next time|tomorrow|between runs|after a restart|when I start it again)
+ (start|run) hokku (in|with) (a named|a|my) session ; never lose a (turn|conversation)
+ (save|store) <chat> (automatically|at every turn|without a command|by itself|continuously)
? is (my|the|this|our|a) (chat|conversation|session|talk) saved (automatically|by itself|without asking|on its own)?
? (which|what) <opt> (resumes|continues|begins|names) (a|my) (session|conversation|chat)?
? is there (an autosave|automatic saving|autosave|an auto-save)? ; does (hokku|it) save (automatically|by itself|each turn|at every turn|on its own)?
? can I (continue|resume|pick up|go on with) (this|the chat|our conversation|it) (tomorrow|later|next time|another day)?
? I want to (go on|continue|carry on) (tomorrow|next week|where we left off|where I left off). ; resume session ; autosave ; automatic saving
? continue tomorrow ; persistent chat
? Do I have to save (every time|by hand|myself)? ; I always forget to save.
? will you remember (this|me|our talk) (tomorrow|next time|when I restart|after I leave)?
? I have to (switch off|restart|reboot) my (computer|machine), can I go on later?
? can (a|my) (conversation|session|chat) be (resumed|continued) (later|tomorrow|at start)?
? I don't want to type /save (every time|all the time|again and again). ; how do sessions work?
? what if my (computer|machine|laptop) (crashes|loses power), is the chat (saved|lost)? ; how do I start where I left off?
? is there an option for (sessions|named conversations)?

= -s N or --seed N sets the seed; the same seed gives the same text.
@ (-s|--seed) ; (-s|--seed) ; (-s|--seed) (N|42|7|1) ; (a|the|the random|) seed
+ <set> (the|a|my) (random |)seed
+ get the (same|identical|very same|exact same) (answer|text|haiku|reply|output|result|poem|words|response) (twice|again|every time|each time|tomorrow|as before|once more|as yesterday|on another machine)
+ make (answers|the output|it|you|the results|hokku|replies) (reproducible|repeatable|deterministic|predictable|the same every time|stable)
+ (reproduce|recreate) (an|the|my) (answer|result|output|haiku|text|reply|run)
+ (get|make|have) (reproducible|repeatable|deterministic|identical) (answers|results|output|text|haiku|runs)
+ (give|use|enter|fix|freeze|pin|supply) (the|a|my own|the same|a fixed|a certain|another) (random |)seed
+ (repeat|rerun) (exactly|) the same (run|output|result|experiment) ; (stop|keep) (you|the answers|it) from changing (every time|each time)
+ (start|seed|initialise|initialize) the (random numbers|random generator|dice|randomness)
+ (remove|control|fix|tame) the (chance|luck|randomness) between runs ; (have|see) exactly the same words (twice|again)
+ show (a friend|someone) exactly the same (answer|haiku|output)
? what is (a|the) seed (for|good for|used for|)?
? why (is|are) (the|every|your|each) (answer|answers|output|haiku) (different|not the same|changing|another) (each|every) time?
? are (answers|the answers|your answers|results|the results) (reproducible|repeatable|deterministic)? ; are you deterministic?
? I need the same (haiku|answer|output|text|result|reply) (again|again tomorrow|every time|twice).
? You (always|) (say|write|answer) something (else|different) (each|every) time. ; (which|what) <opt> (sets|fixes|gives|chooses) the (random |)seed?
? where do I (set|give|put|enter|specify) the seed?
? can (an answer|a result|the output|a run|a haiku) be (repeated exactly|reproduced|made reproducible)?
? why do I get (a different answer|different answers|something else|another text|different words) (each|every) time?
? can you (give|write) (exactly the same|the same) (answer|text|haiku) (twice|again)? ; same answer every time
? random seed ; fixed seed ; set seed ; reproducible output ; deterministic ; same output twice
? I want (the same|exactly the same|identical) (output|answer|text|result|haiku) (every time|each time|twice|again).
? does the same question (give|get) the same answer? ; what makes two runs (the same|identical|equal)?
? I ran it twice and got two (answers|results|texts|different answers). ; how is the randomness (seeded|fixed|set)?
? is there a way of (repeating|reproducing) (an answer|a run|a result)?
? I don't want (random changes|different answers each time|a different answer every time). ; is the output (random|deterministic)?

= -c N sets the context size in tokens; 0 means the model's own size.
@ (-c|--ctx-size) ; (-c|--ctx-size) ; (-c|--ctx-size) (N|0|4096|8192|32768) ; the context (size|length|window)
+ (set|change|choose|make|increase|raise|enlarge|adjust|extend|expand|specify|pick|configure|modify|grow|double|reduce|lower|shrink|limit) the (context size|context length|context window|context|size of the context|length of the context|window)
+ (get|have|use|set|make|ask for) a (longer|bigger|larger|smaller|shorter|wider|huge|long|small|large|maximum) (context|context window|window)
+ give (hokku|the model|you) (more context|a longer context|more room for the conversation|a bigger window|less context)
+ (fit|have|use) (longer|very long) (conversations|texts|documents|chats|prompts)
+ make (you|the model|hokku) remember more (text|tokens|of the conversation|) ; (let|make) the model (see|hold|take) more (text|tokens)
+ (set|change) how (much|many tokens) (you|the model) can (see|hold|keep in view)
+ (use|have) the (model's own|model's full|full|model's whole|largest) context ; save memory with a smaller context
+ (run|start) with (a context of 4096|4096 tokens of context|8192 tokens of context)
? (which|what) <opt> (sets|changes|is for|gives|enlarges|controls) the (context|context size|context length|window|context window)?
? what does (-c 0|a context size of 0|--ctx-size 0|0 for the context size) mean?
? where do I (set|change|give|enter) the context (size|length|window|)? ; is there (an option|a flag|a setting) for the context (size|length|window)?
? how (large|big|long) (is|can) the context (be|by default|)?
? can (the context|the context size|the context window) be (changed|made larger|made bigger|increased|set|enlarged|made longer|reduced)?
? My (texts|documents|conversations) are too long for the context. ; I need (more|a longer|a bigger|a larger|a smaller) context.
? The context is too (small|short|large|big).
? context size ; context length ; context window ; ctx size ; longer context ; number of context tokens
? (you|the model) (forget|forgets) the beginning, can the context be (larger|longer|bigger)? ; how do I use the model's own context size?
? what's the context (size|length|window)? ; can I choose how many tokens the context has?
? I want a (context|window) of (4096|8192|32768|2048|16384) tokens. ; what sets the (size|length) of the context?
? is the context (limited|adjustable|configurable)? ; in what unit is the context (size|length)? ; how many tokens fit (into|in) the context?

= --temp N sets the temperature: lower is calmer, 0 always takes the likeliest token.
@ --temp ; --temp (N|0|0.5|1) ; (the|) temperature
+ (set|change|lower|raise|choose|adjust|increase|decrease|reduce|turn up|turn down|pick|specify|modify) the (temperature|randomness|creativity|temp)
+ make (you|the model|answers|hokku|the output|the replies|it|the text) (more creative|less random|more random|calmer|wilder|less wild|less creative|less crazy|more sober|more inventive|more daring|more boring|hotter|cooler)
+ get (greedy|less random|more creative|more random|calmer|wilder|more varied|more sensible|more careful) (answers|sampling|output|text|replies|responses)
+ always (take|get|pick|choose) the (likeliest|most likely|most probable|best) (token|word) ; (calm|cool) (you|the model|it) down
+ (reduce|increase|control) (how random you are|the randomness|the creativity|the chaos)
+ sample greedily ; (use|turn on|switch on) greedy (decoding|sampling) ; (turn off|remove|switch off) (the randomness|all randomness|chance|sampling)
+ (give|allow) (you|the model) more (freedom|fantasy|imagination) ; get (more variety|more fantasy|more imagination|less nonsense)
+ (heat|warm) up the model
? what is the temperature (for|)? ; what does (the |)temperature (mean|do|change|control)? ; how (random|creative|wild|hot) are you?
? (which|what) <opt> (sets|changes|controls) the (temperature|randomness|creativity)?
? what (does|is) (a high|a low|a lower|a higher) temperature (do|mean|good for|for)? ; what (is|does) temperature (0|zero) (for|mean|)?
? You are too (random|wild|creative|boring|dull|crazy|tame|predictable).
? Your (answers|replies|texts|words) are too (random|wild|creative|boring|dull|crazy|chaotic).
? can you be (more|less) (creative|random|wild|inventive|crazy|boring)?
? I want (more creative|calmer|wilder|less random|greedy|more random) (answers|text|output|replies).
? You (talk|write|say) (nonsense|rubbish|wild things|strange things). ; temperature ; temp ; greedy sampling ; greedy decoding ; randomness
? more creative ; where do I (set|change|find) the temperature? ; can the (temperature|randomness) be (changed|lowered|raised|set|turned off)?
? is there a (setting|knob|dial|option|switch) for (randomness|creativity|the temperature)?
? should the temperature be (low|high|lower|higher)? ; what (temperature|temp) (should I use|is best|is calm)?
? does a (lower|higher) temperature make (answers|you) (calmer|wilder|less random)? ; how hot is the sampling?
? how do I make sure that the likeliest token is always taken?

= -n N stops after N tokens; -1 goes on until the model ends.
@ (-n|--n-predict) ; (-n|--n-predict) ; (-n|--n-predict) (N|-1|50|100|256)
+ (limit|cap|set|restrict|bound|control|cut|reduce|fix) (the|an) (length|size) of (the|an|your|each|every) <ans>
+ get (a shorter|shorter|a longer|longer|briefer|a brief|brief|a short|short) (answer|answers|replies|reply|responses|output|text)
+ (limit|set|cap|restrict|choose) the (number of|maximum number of|count of|) (new |output |generated |)tokens
+ make (answers|your answers|replies|the output|responses|the text) (short|shorter|brief|longer|less long|as long as possible)
+ (keep|have) (the answers|your answers|answers|replies|it) (short|brief|to a few words|under 50 tokens)
+ (stop|end|cut off) (the answer|the output|it|you|the text) after (N|some|100|a hundred|fifty|20|a few|a number of) tokens
+ (set|give) (a|the) (maximum|limit|max|upper limit) (of tokens|for the answer|for the length|length|of the answer)
+ (generate|print|write|produce) (only|at most|exactly|no more than) (N|10|100|a few|50) (tokens|words)
+ (let|have) (you|the model) (write|talk|run) as long as (it wants|you want) ; make you talk less
+ (say|tell you) how long the (answer|reply|output) (may|should|can) be ; (remove|lift) the length limit
+ (choose|decide) how (long|much) you (write|talk|answer)
? (which|what) <opt> (limits|sets|caps|controls|shortens) the (length|answer|output|length of the answer|number of tokens|answer length)?
? You (talk|write|ramble|go on|speak) too (long|much). ; Your (answers|replies|texts|responses) are too (long|short|wordy).
? how long (can|may|will) (an|the|your) answer (be|get)?
? can (the answer|answers|the output|the length|replies) be (limited|shorter|cut|made shorter|capped|kept short)?
? what is the (maximum|limit) (length|for the length) of an answer? ; max tokens ; answer length ; shorter answers ; number of tokens to predict
? limit output ; token limit ; length limit ; maximum length
? I (want|need|only want|prefer) (a short|short|shorter|brief|a brief) (answer|answers|output|replies).
? I don't want (long answers|such long answers|a long answer|more than 100 tokens).
? is there a (limit|maximum|cap) on the (length|answer|output|number of tokens)? ; how many tokens (will|do|can) you (write|generate|predict)?
? what does -n -1 mean?
? can you (be brief|keep it short|be shorter|write less|say less)? ; please (be brief|keep your answers short), how do I (set|say) that?
? where do I (set|limit|put) the (answer length|maximum length|length of answers|number of tokens)? ; The answers never (end|stop).
? how can I have (short|shorter|long) (answers|replies)?

= -sys TEXT gives a system prompt; -sys @NAME takes one by name, -sysf FILE from a file.
@ (-sys|--system-prompt) ; -sysf ; (-sys|--system-prompt) (TEXT|@NAME) ; -sysf (FILE|system.txt) ; (a|the|) system (prompt|message)
+ (give|set|use|add|write|define|pass|provide|start with|supply|specify) (a|the|my own) system (prompt|message|text|instruction)
+ (tell|instruct) (the model|you|hokku) how to (behave|act|answer|talk|reply|respond|speak)
+ give (you|the model) (instructions|rules|a role|a character|a personality|a persona|orders|guidelines)
+ (make|let) (you|the model|it) (act as|play|talk like|speak like|be|behave like|pretend to be) (a pirate|a teacher|a poet|an expert|someone else|a monk)
+ (read|take|load|get) (the|a|my) system (prompt|message) from a file
+ (put|set) (instructions|rules) (at the start|before the conversation|before everything)
+ (set|change|define|choose) (your|the model's) (role|character|personality|behaviour|behavior|tone|style|manners)
+ start hokku with (instructions|a role|a persona|rules) ; (use|take|pick) a system prompt by name ; use a (named|stored) system prompt
+ (give|set) (general|standing|first) (instructions|rules)
? what is (a|the) system (prompt|message) (for|)? ; (which|what) <opt> (gives|sets|takes|is for) (a|the) system (prompt|message)?
? where do I put the system (prompt|message)? ; where does the system (prompt|message) go?
? can I (give you|tell you|set) (a role|instructions|rules|a persona|a personality|how to behave)?
? can (you|the model) (play a role|act like a pirate|follow instructions|have a personality|behave differently)?
? I want (you|the model) to (behave|talk|answer) (differently|like a pirate|politely|like a poet|in a certain way). ; my system prompt is in a file
? system prompt ; system message ; system prompt from a file ; instructions for the model ; role ; persona
? how is a system prompt (given|set) (at start|)? ; how can a system prompt be (given|set) (at start|)?
? is there (an option|a flag|a switch) for (a system prompt|instructions|the system message)?
? can the system prompt (come from|be read from|be in) a file? ; does (hokku|it) (support|take|know|allow) (system prompts|a system prompt)?
? where do (the|my|general) instructions go? ; I'd like to give the model (some rules|a role|instructions).
? I have a system prompt in a (text file|file), how do I use it? ; how do I write (a|the) system prompt on the command line?
? what (tells|instructs) the model how to behave?

= /system TEXT sets the system prompt of this chat.
@ /system ; /system (TEXT|be brief)
+ (change|set|replace|rewrite|alter|switch|update|edit|modify|swap) (the|my|your) (system prompt|system message|system text|instructions|role|rules) <here>
+ (give|add) (you|the model) (new|other|different) (instructions|rules|orders) <here>
+ (set|change) the system prompt of (this|the current|a running|the running) (chat|conversation|session)
+ (change|set) (your|the model's) (behaviour|behavior|role|personality|tone|character) <here>
+ (use|have|try) (another|a new|a different) system (prompt|message) <here> ; (tell|instruct) (you|the model) to behave differently <here>
+ (make|let) you play another role <here>
? (which|what) (command|slash command) (sets|changes|replaces|gives) the (system prompt|system message|instructions)?
? can (I change|you change) the system (prompt|message) <here>? ; can the system (prompt|message) be (changed|set|replaced) <here>?
? I (forgot|did not give) the system prompt at the start, can I (set|give) it now?
? I'm (already|) in the chat and want (another|a|a new) system prompt. ; is there a (chat |slash |)command for the system (prompt|message)?
? must I (restart|leave) to change the system prompt? ; system prompt in the chat ; change system prompt now ; system command
? how do I change the system prompt without (restarting|leaving|-sys)?
? I'd like to give you (new instructions|another role) now, in the middle of the chat. ; what do I type in the chat to set the system prompt?
? Can your (role|instructions) change <here>? ; what's the slash command for the system prompt? ; is there something like -sys inside the chat?

= /clear forgets the conversation and starts anew.
@ /clear
+ (clear|wipe|reset|forget|erase|empty|delete|drop|discard|throw away|clean) (the|this|our|the whole|the entire) (chat|conversation|context|dialogue|talk)
+ (clear|wipe|reset|empty) the (screen of the chat|memory of the chat|chat history|history of this chat|slate)
+ start (over|again|anew|afresh|from scratch|from the beginning|fresh|all over|a new chat|a fresh conversation|a new topic|with a clean slate|with an empty chat)
+ begin (a new conversation|anew|again|from scratch|a new chat|at zero)
+ (make|let) (you|the model|hokku) forget (everything|this|all|what we said|all of this|our conversation|me)
+ reset ; clear ; reset everything ; clear everything ; (open|have|get) (a new|a fresh|an empty|a clean) (chat|conversation)
+ (change|switch) (the subject|to a new topic) and forget the old one ; (throw|wipe) everything away
+ (delete|erase|remove) (all messages|all turns|every turn|everything we said|the whole thing)
? (which|what) command (clears|empties|resets|wipes|forgets) (the chat|the conversation|everything|the context)?
? can you forget (everything|this|what I said|all that|our conversation|all of it)? ; can we start (over|again|anew|from scratch|afresh)?
? Forget (everything|it all|all that|all this|everything I said), how?
? I want (a new|a fresh|a clean|an empty) (chat|conversation|start). ; Let's start (over|again|from scratch|afresh).
? how is the (chat|conversation|context) (cleared|emptied)? ; how can the (chat|conversation|context) (be cleared|be emptied|be reset)? ; new chat
? new conversation ; clear chat
? start over ; clean slate ; fresh start ; clear the context
? can I (start over|begin again|reset|clear everything) without (leaving|restarting|quitting)?
? I want to talk about something (else|new|completely different), without the old (talk|conversation).
? is there a (reset|clear command|reset command)? ; how do I get rid of (the|this|our) (conversation|chat)?
? can the (conversation|chat) be (deleted|wiped|forgotten|erased)?
? You are confused, let's begin again. ; This conversation has gone (wrong|bad|nowhere).
? I don't want you to remember (this|any of this|what we said). ; does (hokku|it) have a reset?
? what do I type to start (over|anew|again|from scratch)?

= /retry gives another answer to the same question; /retry 7 uses seed 7.
@ /retry ; /retry (7|42|N)
+ (retry|repeat|redo|regenerate|reroll|re-roll|rerun|renew) (the|an|your|the last|your last) <ans>
+ get (another|a new|a different|a better|a second|a fresh|one more|an alternative) <ans> (to the same question|to my question|)
+ ask (again|the same again|the same question again|once more)
+ (try|roll) again ; try (once more|another answer|a second time)
+ (have|let|make) (you|the model) (try again|answer again|answer once more|answer anew|have another go|give it another try|think again)
+ (regenerate|reroll|retry) ; (give|write|generate|produce|create) (another|a new|a different) (version|answer|variant|reply) (of the answer|)
+ (repeat|resend|ask) my (last question|question) (again|) without typing it (again|)
+ see (another|a different|an alternative) (answer|version|reply) ; (replace|swap|throw away) (the|your) (bad|last|poor) answer (for a new one|)
+ (use|try) another seed for the (last|same) (answer|question)
? (which|what) command (gives|makes|gets|brings) (another|a new|a different|a better) (answer|reply|response)?
? I (don't|do not) like (this|that|the|your) (answer|reply|response|haiku).
? can you (try again|answer again|do better|give me another answer|say that differently|give another reply|do that again)?
? That (answer|reply|was|one) (was bad|is bad|not good|wrong), (try again|another one|how do I get another|can I have another).
? I want (another|a different|a better|a new|a second) (answer|reply|response|try).
? how is an answer regenerated? ; how can an answer (be regenerated|be repeated with another seed)? ; retry ; try again ; regenerate ; another answer
? can (the answer|an answer|the last answer) be (regenerated|retried|generated again|redone)?
? is there a (retry|regenerate button|second chance|retry command|reroll)? ; once more, please: how?
? can I have (another|a second|a different|one more) (answer|try|reply|version)?
? your answer was (bad|wrong|poor|nonsense|not what I wanted), can I get another?
? how do I ask the same (question|thing) (again|once more|a second time)? ; must I type my question again to get another answer?
? can I get (a different|another) answer to the same question? ; The answer is (wrong|poor|strange). How do I get another?
? one more (try|attempt), how?

= /edit changes your last message; /edit N changes turn N.
@ /edit ; /edit (2|3|N|1)
+ (edit|change|correct|fix|rewrite|reword|rephrase|modify|amend|improve|alter|adjust|repair) (the|my|my last|the last|my previous|an earlier|an old|my latest) (message|question|turn|prompt|input|words)
+ fix (a typo|a mistake|an error|my typo|my spelling|a slip|a misspelling|a spelling mistake) (in my question|in my message|in what I wrote|in my last message|)
+ (edit|change|correct|fix|rewrite|reword|rephrase|improve) what I (wrote|typed|said|asked|sent|just wrote|just typed)
+ (edit|change|correct|rewrite) (turn 2|turn 3|an earlier turn|a turn|the second turn|my first message|one of my messages)
+ (put|write|say|ask) (my question|it|that|what I asked) (differently|better|another way)
+ edit ; correct (myself|something I wrote|a wrong word) ; (change|replace) a word (in my message|in my question|that I typed)
+ (make|do) (a correction|an edit|a change) (to my message|in my message|)
? (which|what) command (edits|changes|corrects|fixes) (a turn|my message|a message|my question|what I wrote|my last message)?
? I made a (mistake|typo|slip|spelling mistake|spelling error) (in what I typed|in my question|in my message|when I typed|there|).
? I (misspelled|mistyped|misspelt) (something|a word|my question|that).
? can I (edit|change|correct|fix|reword|rewrite|rephrase) (my message|what I wrote|my question|a message|an earlier message|my last message|what I typed)?
? can (my message|a message|a turn|what I typed|my question|an earlier turn) be (edited|changed|corrected|fixed|rewritten)? ; edit message ; fix typo
? edit a turn ; correct my question
? There is a (typo|mistake|wrong word|error) in my (last message|question|message|prompt). ; I (meant|wanted) to (write|type|ask) something else.
? Oops, a typo. ; is there (an edit|an edit command|a way of editing) (here|)? ; I (spelled|typed|wrote) (it|a word|something|a name) wrong.
? I want to say (it|that|my question) differently.
? how is a (message|turn|question) edited? ; how can a (message|turn|question) (be edited|be changed|be corrected)?
? I wrote (the wrong word|something wrong), can I (fix|change|correct) it? ; is it possible to correct (what I typed|a message|my question)?
? I'd like to (rephrase|reword) (that|my question|it). ; my question was badly worded

= /continue lets the model go on with its last answer.
@ /continue
+ (continue|finish|extend|complete|lengthen|resume) (the|your) (last |)<ans>
+ (let|make|have) (you|the model) (go on|continue|keep going|carry on|write on|say more|finish|keep writing|write more|finish the sentence|talk on)
+ make (the|your|the last|your last) answer longer
+ (hear|read|see|get) (the rest|the rest of the answer|more of the answer|the rest of it|the end of the answer|what comes next|how it goes on|more of this)
+ (go|carry|write) on with (the|your) (last |)(answer|reply|text) ; continue
+ (finish|complete) (a cut|a broken|an incomplete|an unfinished|a stopped|an interrupted) (answer|reply|sentence)
+ (get|have) more (of the answer|of it|text from you|out of the last answer)
+ (pick up|go on|continue) where you (stopped|left off|were cut off|broke off) ; (add to|append to|go on from) (the|your) last (answer|reply)
? (which|what) command (continues|extends|finishes|goes on with|completes) (the|an|your) (answer|last answer|reply)?
? (The|Your) (answer|reply|text|last answer|response|sentence) (was cut off|stopped too early|is incomplete|is not finished|ended too soon|broke off|stopped in the middle|is unfinished|got cut off).
? You stopped (too early|in the middle|in the middle of a sentence|too soon|halfway|mid-sentence).
? can you (go on|continue|finish|keep going|write more|say more|carry on) (with that|with your answer|with the answer|please|)?
? (the answer|it|that) was too short, can you (go on|continue|say more)? ; continue the answer ; keep going ; go on with the answer
? You didn't finish (your|the) (answer|sentence|thought). ; I pressed Ctrl-C too early, can you go on?
? can (an answer|the last answer|a cut answer|an interrupted answer) be (continued|extended|finished|completed)?
? where is the rest (of the answer|of your answer|)? ; I want (more of that|the rest|to read the rest|you to go on). ; rest of the answer
? is there more? ; what comes after that? How do I make you go on? ; and then? you stopped
? how do I make you (go on|continue|finish your sentence|write on)? ; after -n cut the answer, how do I get the rest?
? can you pick up where you stopped? ; is there a way for you to (go on|continue|keep writing)?

= /set NAME VALUE changes a setting, for example /set temp 0.5
@ /set ; /set (temp 0.5|NAME VALUE|top_k 20|temp 1)
+ (change|set|adjust|modify|alter|tweak|tune) (a setting|settings|an option|options|the settings|my settings|a parameter|parameters|the sampling settings|a value|the options) (<here>|here|)
+ (change|set|lower|raise|adjust) (the temperature|the temp|top-k|top-p|min-p|the seed|the repeat penalty) <here>
+ (change|set|switch) (something|things|options|the sampling|sampling) <here> ; (make|do) (a change|changes) to the settings (<here>|)
+ (change|use) other settings without (leaving|restarting|quitting) ; (give|assign) a (setting|parameter) (a new|another) value
+ play with the settings
? (which|what) (command|slash command) (changes|sets|adjusts) (a setting|settings|the settings|options|the temperature)?
? can I change (the settings|settings|a setting|options|the temperature|parameters) (<here>|now)?
? can (settings|the settings|a setting|the temperature|options) be (changed|set|adjusted|altered) <here>?
? do I have to (restart|leave|quit) to change (a setting|the settings|the temperature|an option)?
? I'm in the chat and want (another|a lower|a higher) temperature. ; change settings ; set a setting ; settings in the chat ; set temp
? how (is|are) (a setting|settings) changed (in the chat|)? ; I (forgot|did not give) an option at the start, can I set it now?
? is there a (command|slash command) for (settings|changing settings|options)?
? where (can|do) I change (the|my) (settings|options|preferences|parameters)? ; can I (tune|adjust|tweak) (you|things|the sampling) <here>?
? how do I change a (value|setting|parameter)? ; what do I type to change a setting? ; preferences

= /show tells about the model, settings, system, context, template or stats.
@ /show ; /show (model|settings|system|template|context|stats)
+ (see|show|view|list|read|display|print|check|inspect|look at|look up) (the|my|current|the current|all|all the|your) (settings|template|chat template|options in use|setup|parameters|sampling settings)
+ (see|find out|check|know|tell|learn|show) (which|what) model (is|I have) (loaded|running|in use|open)
+ (see|show|view|display|read|check|print) (the|my|the current) (system prompt|system message|model name|name of the model|model information)
+ (see|find out|check|know) (which|what) (settings|temperature|system prompt|template|values) (is|are) (set|in use|active|used now)
+ (see|get|show) (information|details|facts|infos) about (the loaded model|the running model|this model|the current settings)
+ see what is (set|loaded|configured)
? (which|what) model (is|have I|did I) (loaded|running|in use|load|open now|active) (now|right now|at the moment|here|)?
? what are (the|my|the current|your) settings (now|at the moment|right now|)?
? (which|what) command (shows|tells|prints|lists|displays) (the settings|the model|the loaded model|the system prompt|the template)?
? what is the (name of the loaded model|current system prompt|current temperature|loaded model|running model)?
? (which|what) (settings|system prompt|template|chat template|temperature) (is|are) (active|in use|set) (now|)? ; show settings ; current settings
? current model ; show model ; loaded model ; model name ; view the settings
? I (forgot|don't remember|don't know) (which model I loaded|which model is running|what I set|my settings|my system prompt).
? can I see (the|my|the current) (settings|system prompt|template|model|model name)?
? how can (the settings|the system prompt|the template) be (shown|seen|displayed|viewed)? ; where (are|can I see) (the|my) (current |)settings?
? is there a command that shows (the settings|the model|what is loaded)?
? what (temperature|top-k|seed) is set (now|at the moment)? ; what can /show (show|tell|display)?
? how do I know which model (I'm using|is loaded|I loaded|is running)? ; what's (loaded|running) (now|right now|)?

= /context shows the tokens used, for each turn, and how many are left.
@ /context
+ (see|know|find out|check|learn|tell|show|measure) how (full the context is|many tokens are (left|used|free)|much (context|space|room) (is|I have) (left|used)|much of the context is (used|left|free)|far the context is filled|close to the limit I am|long this chat is in tokens)
+ (count|see|show|know|check) the tokens of (this|the|our) (chat|conversation|session|turn|talk)
+ (see|show|view|check|display) the (context usage|token count|used tokens|tokens used|token usage|tokens left|remaining tokens|free tokens|fill level of the context|remaining context)
+ (see|know) how many tokens each turn (has|takes|uses|used)
+ see what (uses|takes|fills) (the|up the) context ; (see|know|check) (if|whether) the context is (nearly|almost|soon) full
+ (watch|monitor|track) the (context|tokens|token usage)
? how many tokens (are left|are used|have I used|did we use|do I have left|remain|are free|have we used|can I still use|does this chat have|does each turn use|did that cost|are in this chat)?
? how (full|filled|used up) is the context? ; how much (context|room|space|of the context) (is|do I have|do we have|have I) (left|remaining|used)?
? is the context (nearly|almost|soon|already) (full|used up|filled)?
? (which|what) command (shows|counts|tells) (the tokens|the tokens left|the tokens used|the context usage|how full the context is)?
? when will the context be full? ; how long is (this|our) (chat|conversation) (in tokens|by now|already|)? ; tokens left ; context usage ; token usage
? remaining tokens
? Am I (close to|near) the (limit|end of the context)? ; are there (tokens|any tokens) left?
? can I see (how many tokens are left|the token count|the tokens used|how full the context is|what fills the context)?
? how can the used tokens be (seen|counted|shown)? ; where do I see (the tokens used|how many tokens are left|the token count)?
? I (fear|think|worry) the context is (nearly|almost) full. ; do I have (enough|much|any) context left?
? how much can I still (write|say|type) (before the context is full|)? ; what is the (token count|number of tokens) of this (chat|conversation)?
? how many tokens (is|was) (my last turn|each turn|every turn)?

= /why shows the alternatives and their probabilities at each token of the last answer.
@ /why ; /why (1|2|N)
+ (see|know|find out|understand|learn|show) (why you (said|wrote|chose|answered|picked) (that|this|so|it|this word|that word)|the probabilities|the alternatives|the other candidates|which words were close|which other words were possible|what else you could have said|how sure you were|how sure you are|how certain you were)
+ (see|show|view|get|look at|inspect) (the|) (probabilities|probability|alternatives|candidates|other choices|chances|odds|likelihoods) (of each word|of each token|of the last answer|at each token|of your words|behind your answer|)
+ (look|see|peek) (into your head|inside your choice|behind the answer|behind your words)
+ (explain|understand|analyse|analyze|examine) (your|the) (last answer|choice|choice of words|word choice|choices|decision)
+ know why you (said|wrote|chose) that ; (check|see|judge) (your confidence|how confident you were|how likely your words were)
? (which|what) command (shows|prints|tells) (the probabilities|alternatives|the alternatives|how sure you were|why you said that)?
? why did you (say|write|choose|answer|pick) (that|this|so|that word|this word|it)? ; what (made|makes) you (say|write|choose|pick) that?
? how (sure|certain|confident) (are|were) you (of that|about that|)?
? what else (could|might) you have (said|written|chosen|answered)? ; what were the (alternatives|probabilities|other options|odds|candidates)?
? (which|what) (other words|other tokens|words) (were|did you) (possible|likely|consider|think of)?
? how (probable|likely) was (that|that word|each word|your answer)?
? can I see (the probabilities|the alternatives|why you said that|how sure you were)?
? word probabilities ; token probabilities ; alternatives ; probabilities of the last answer ; That's a strange answer, why?
? That is a (strange|odd|funny|surprising) word, how did you come to it?
? how did you (come to|get to|arrive at|choose) (that|this answer|these words|that answer)?
? Explain your (last answer|answer|choice of words|choice).
? how can (the probabilities|the alternatives) be (shown|seen|displayed)? ; were there (other|any) (words|choices|possibilities|alternatives)?
? I want to (look inside|know what you were thinking|know how you choose words).
? is there a way of seeing (the alternatives|the probabilities|how sure you are)? ; why this word and not another?

= /stats shows the speed: tokens read and written per second.
@ /stats ; --stats ; (/stats|--stats)
+ (see|measure|check|know|show|find out|learn|view|display) (the speed|your speed|how fast you are|how fast you write|how quick you are|the tokens per second|how many tokens per second you write|how long the answer took|the timing|the timings of the last answer|the statistics|statistics)
+ (see|show|view|get) (the|some|) (speed statistics|stats|timing statistics|performance numbers)
+ (print|show|get) (the statistics|statistics|stats|the speed) (after each answer|after every answer|of this chat|of the last answer|at the end)
+ (see|know) how (long|much time) (the last answer|that|an answer) took
? how (fast|quick|quickly|slow|speedy) (are you|do you write|do you answer|do you read|was that|was that answer|is this chat)?
? what is (your|the current) speed? ; how many tokens per second (do you (write|read|make|manage|do)|is that|was that|are that|do I get)?
? (which|what) (command|option) shows (the speed|the statistics|tokens per second|how fast you are|stats)?
? You are (slow|so slow|very slow|fast|very fast). How fast exactly? ; tokens per second ; your speed ; statistics ; speed of this chat ; t/s ; tok/s
? how long did (that|the answer|the last answer|it) take? ; can I see (the speed|your speed|how fast you are|the tokens per second|statistics)?
? where (is|can I see) the speed (shown|)? ; where are the statistics?
? are you (fast|slow|quick)? ; how much time did (that|the answer|it) (take|need|cost)?
? can (hokku|it|you) (show|print) (the speed|statistics|how fast it is|tokens per second)? ; is there a (display|counter|command) for the speed?
? what speed do (I|you) get? ; do you have (statistics|stats)? ; at what speed do you (write|run|read)?

= /fork NAME copies the conversation under a new name.
@ /fork ; /fork (NAME|try2|other)
+ (fork|copy|branch|duplicate|clone|split|branch off|double) <chat> (under a new name|)
+ (make|create|have|take) (a copy|a branch|a fork|a second copy|a duplicate|another version) of <chat>
+ (try|test|explore) (something else|another direction|a different direction|two directions|another path) without losing <chat>
+ (split|branch|fork) (off|here|at this point|) ; (go|continue) in two (directions|ways)
+ (start|open) a (branch|side branch|second branch|fork|copy) (from here|of this chat|at this point)
+ (keep|have) two (versions|variants|copies|branches) of <chat> ; copy (this|it|everything) (under|to) (a new|another) name
? can (the|a|this|our) (chat|conversation) be (copied|forked|branched|duplicated|cloned|split)?
? (which|what) command (copies|forks|branches|duplicates|clones) (the|this|a) (chat|conversation)?
? I want to try (two ways|something else|another direction), but keep this (chat|conversation).
? can I (branch|fork|clone|duplicate|copy) (this chat|the session|the chat|our conversation)?
? fork ; fork conversation ; copy chat ; branch the chat ; duplicate conversation
? is there a (fork|branch|copy|copy command) (for the chat|of the chat|for conversations|)?
? how can I have (two|a second) (copies|copy|version|versions) of this (chat|conversation)? ; can I have a copy of (this|the|our) (chat|conversation)?
? can I go two ways from (here|this point)? ; I'd like a (branch|copy|second version) of this (chat|conversation).
? what if I want to continue in two directions? ; how is a conversation (copied|forked|branched|duplicated)?
? does (hokku|it) (have|know|support) (branches|forks|branching)?

= /read FILE puts a file into your message.
@ /read ; /read (FILE|notes.txt|letter.txt|main.c)
+ (give|show|send|hand|pass|feed) (you|the model) (a|the|my|this) (file|text file|document|source file|letter) (<here>|)
+ (read|paste|insert|put|include|add|attach|load|import|upload|bring) (a|my|the|this) (file|text file|document|source file) (in|into|to) (the chat|my message|the conversation|a message|my question|our chat)
+ (ask|talk) about a (file|document|text file|text on my disk) ; (attach|upload|include|insert) a (file|document|text file)
+ (let|have|make) you (read|see|look at) (a|my|this) (file|document|text|letter|text file)
+ show you (my code|my notes|a text from my disk|a document|what is in a file)
+ (use|put) the (contents|content|text) of a file (in my message|in the chat|in a question) ; (send|add) (files|documents) to the (chat|conversation)
? can (you|hokku|it|the model) (read|open|see|take|look at) (files|a file|my files|my file|documents|a document|a text file|notes.txt)?
? can I (give|show|send|attach|upload|pass) (you |)(a file|files|a document|my notes|a text file)?
? (which|what) command (reads|inserts|includes|puts in|attaches|loads) a (file|document|text file)?
? I have a (file|document|text|text file|letter) (that you should read|for you|for you to read|to show you|which you should see).
? How (is|can) a file (put into|be put into|inserted into|be added to) (the chat|a message|my message)? ; attach file ; read file ; file in the chat
? insert a file ; upload file
? I want you to (read|look at|see|check) (a file|my file|my notes|my document|a document|this file). ; Look at my file, how?
? I don't want to (paste|type|copy) the whole file (by hand|). ; are files (possible|allowed) in the chat? ; where do I put a file in the chat?
? is it possible to (include|attach|upload|insert) a file?
? what about a file on my disk, can you see it? ; can a (file|document) be part of my message? ; Here is my file notes.txt, how do I give it to you?
? do you (accept|take|read) files? ; how does a file get into (my message|the chat|the conversation)?

= /help lists the commands.
@ /help ; /? ; (/help|/?)
+ (see|list|show|find|view|display|get|learn|read|look up|print) (all|the|all the|your|a list of the|the list of|every) (commands|command|slash commands|chat commands)
+ get (help|some help|assistance|an overview|an overview of the commands)
+ (find out|know|learn|see) (which|what) commands (there are|exist|I can use|you know|are possible)
+ (see|open|find|read|get) the help (text|page|) ; (look up|find) (a command|the name of a command|a slash command)
? (what|which) (commands|slash commands) (are there|exist|do you know|can I use|do you have|are available|do you understand|can I type|can I give|does hokku have|does it know|are possible|are supported)?
? where is the (help|list of commands|manual|command list|overview|instructions page)? ; help ; help please ; I need help
? is there (a help|any help|a list of commands|a help command|a command list|an overview|a help page|a manual|some help)? ; what can I type (here|)?
? can you list (the commands|all commands|your commands)? ; list of commands ; all commands ; command list ; commands ; slash commands
? overview of commands ; the commands
? I (forgot|don't remember|don't know|can't remember) (a command|the commands|the name of a command|which commands there are|what to type|any commands).
? what are (the|your|all the|all) commands? ; how many commands (are there|do you have)? ; I'm lost. ; I don't know (what to do|where to start).
? who can help me with the commands?
? which command lists (all|the|the other) commands? ; how can (the|all) commands be (listed|seen|shown)? ; tell me (the|all|your) commands
? name the commands ; show me the commands ; where do I (find|see|get) (the commands|help|a list of commands)?
? what commands can I use (here|in the chat|)?

= Type """ before and after several lines, or end a line with \, or press Alt-Enter.
@ (Alt-Enter|Alt+Enter|alt enter) ; (Ctrl-J|Ctrl+J|Control-J) ; """ ; a \ at the end of a line ; multi-line input
+ (type|enter|write|send|input|give|put in|compose) (several|many|multiple|two|more|more than one|a few|three) (lines|paragraphs|rows) (at once|in one message|)
+ write a (long|multi-line|multiline|two-line|longer) (message|question|prompt|text|input)
+ (start|insert|begin|add|make|type|get|put in) a (new line|line break|newline|linebreak|second line|carriage return)
+ (break|end|wrap) (a|the) line without sending (it|the message|) ; (go|get|move) to the next line (without sending|)
+ (enter|type|send|input) (a poem|code|a letter|a paragraph|a multi-line text|a block of text) (over several lines|line by line|with line breaks)
+ press Enter without sending
+ (continue|go on) on the next line ; have (line breaks|several lines|more than one line) in (my|a) message
+ (avoid|prevent) sending (when I press Enter|at the end of the line|too early)
? can I (type|write|enter|send|input) (several|more than one|multiple|many|two) (lines|paragraphs) (at once|in a message|)?
? how do (multi-line|multiline|long|several-line) (messages|inputs|prompts|questions) work?
? (which|what) (key|keys) (makes|starts|gives|inserts) (a new line|a line break|another line)? ; Enter sends my message, but I want a new line.
? can a message (have|be|contain) (several lines|more than one line|line breaks|two lines)?
? I want to (write|type|enter|send) (more than one line|several lines|two lines|many lines). ; multiline ; multi-line message ; several lines
? line break ; newline ; new line ; multiple lines ; multiline input
? When I press Enter it sends (at once|immediately|my message|too early). ; is there a key for (a new line|a line break|newlines)?
? how is a (new line|line break) (typed|made)? ; how can a (new line|line break) (be typed|be entered)?
? my (message|question|text|poem|code) has (several|many|two|more than one) lines ; is it possible to (type|write|enter) (several|multiple) lines?
? are (multi-line|multiline) messages possible?
? how do I (write|type|put|enter) a poem of several lines into my message?
? does (hokku|it) (allow|support|take) (multiple lines|several lines|multi-line input|multiline messages|line breaks)? ; what do triple quotes do?
? what (are|is the use of) (triple quotes|three quotes|three quotation marks)? ; what does a backslash at the end of a line do?

= Press Ctrl-C: hokku stops and keeps the partial answer.
@ (Ctrl-C|Control-C|Ctrl+C|ctrl c|^C)
+ (stop|interrupt|cancel|abort|break off|halt|break|cut short|kill|end) (an|the|your|a long|this|a running|this long|the current) <ans>
+ (stop|interrupt|halt|pause|silence) (you|the model|it) (while talking|while you talk|in the middle|while you write|while answering|now|)
+ make (you|it) (stop|stop talking|stop writing|shut up|be silent now)
+ (stop|break off|end|cancel|abort|halt) (the generation|generation|the writing|the output|the stream of words|the flow of text|what you are writing|a long text) (early|in the middle|at once|immediately|)
+ (cut|break) (you|the answer|it) off ; (keep|save) the part (of the answer|) that was written before I stop you
+ stop you (before the end|before you finish|early|right now|at once) ; (interrupt|stop) an answer (early|halfway|before it ends|midway)
? (which|what) (key|keys|button|shortcut) (stops|interrupts|cancels|aborts|breaks off|halts) (the|an|your|a running) (answer|reply|output|generation)?
? what (happens|do I get) (when|if) I (interrupt|stop|cancel|break off) (you|an answer|the answer)?
? You won't (stop|shut up|stop talking|stop writing). ; how do I shut you up?
? can I (stop|interrupt|cancel|halt|abort) (you|an answer|the answer|a long answer|your answer|it) (while you write|in the middle|early|)?
? can (an answer|the answer|the generation|the output) be (stopped|interrupted|cancelled|aborted|broken off)? ; stop talking ; stop the answer
? interrupt ; cancel answer ; stop generation
? You are still (talking|writing), how do I stop you? ; The answer (goes on and on|is running too long|runs on forever), how do I stop it (now|)?
? is the partial answer (kept|lost|saved) (when I stop|if I interrupt|)?
? I've (read|seen|heard) enough (of this answer|), how do I (stop|interrupt) it? ; is there a stop (key|button)?
? how is (an|the) answer (stopped|interrupted)? ; how can (an|the) answer (be interrupted|be stopped)?
? what do I press to (stop|interrupt|cancel|halt) (you|the answer|the output|it)? ; what if I don't want to wait for the end of the answer?
? How do I make you stop? ; does stopping (lose|delete) the answer?

= Pipe it in: cat notes.txt | hokku "Summarise this:"
@ a pipe ; (stdin|standard input)
+ (pipe|send|feed|stream|redirect|put|push) (text|a file|input|something|a text|data|the output of a command|the output of another program|a git diff|a log) (into|to|through) hokku
+ use hokku in a (pipe|pipeline) ; use (pipes|a pipe|stdin|standard input)
+ (summarise|summarize|shorten) a (file|text|document|text file) (<shell>|) ; use hokku in a (script|shell script|bash script|cron job|Makefile)
+ (connect|combine|chain) hokku (with|to) (another program|other programs|other commands|cat|grep|another command)
+ (let|make|have) hokku read (stdin|standard input|from a pipe|from another program|the output of a command)
+ (pass|give) (standard input|the output of another command|piped text) to hokku ; (work|use it) with pipes ; (run|call) hokku (in|from) a script
+ (process|work on) (a text|text|a file) (in a pipeline|with cat and a pipe|with a pipe)
? does hokku (work|go|run|function) (in|with) (pipes|a pipe|a pipeline|scripts|a script|shell scripts)?
? can hokku (read|take|accept|use|process) (stdin|standard input|input from a pipe|a pipe|piped text|input from another program|the output of a command)?
? does (hokku|it) (read|accept|take|support|understand) (standard input|stdin|pipes|piped input)?
? can I (pipe|feed|stream) (something|a file|text|data) (into|to) (hokku|it|you)?
? is it possible to use hokku in a (pipe|script|pipeline|shell script)? ; piping ; pipe ; pipes ; pipeline ; shell script ; scripting ; unix pipe
? stdin ; standard input ; how do (pipes|scripts) work with hokku?
? how can (text|a file|data) be piped (in|into hokku)? ; I have the output of (a command|another program|git diff), how does hokku get it?
? I (write|am writing) a (shell script|script), can hokku be used (there|in it)? ; can I (use|call) hokku from (a script|bash|a shell script|cron)?
? is hokku (scriptable|pipe friendly)?
? I want to (summarise|summarize) (a file|my notes|a text|notes.txt). ; can (hokku|it) (summarise|summarize) a (file|text)?
? I'd like to (use hokku with|put hokku behind) (cat|grep|a pipe). ; where does piped text go?
? does it play well with other (programs|commands|unix tools)?

= Give the prompt as an argument: hokku "Write a haiku"
@ (-p|--prompt) ; (-p|--prompt) ; (-p|--prompt) TEXT
+ (ask|put) (one|a single|just one|only one|a quick) question (<shell>|)
+ get (one answer|just one answer|a single answer|only one answer) and (leave|exit|quit)
+ (run|use|call|start) <prog> (once|for one answer|for one question|without a chat|without the chat|non-interactively|in one shot|as a one-liner|for a single prompt)
+ (give|pass|write|put|specify|enter|hand over) (a|the|my) (prompt|question) (<shell>|as an argument|at start|when starting hokku|directly|on the line that starts hokku)
+ ask (something|hokku something) (<shell>|without opening the chat|without entering the chat|without starting a chat)
+ (get|have) (an answer|a quick answer|a haiku) (<shell>|without a conversation|without a chat|straight from the shell)
+ (skip|avoid|bypass|do without) the (chat|conversation|interactive mode|dialogue)
+ (use|run) hokku (non-interactively|as a one-shot command|with a prompt)
+ (start|call) hokku with a (prompt|question)
? where does the (prompt|question) go (on the command line|)?
? where do I (put|write|give|type) (the|my) (prompt|question) (on the command line|in the command|)?
? can I ask (one|a single|just one) (question|thing) (without a chat|without the chat|from the shell|only|)?
? (which|what) <opt> (gives|takes|is for|carries|holds) the prompt?
? how can a prompt be (given|passed) (on the command line|from the shell|as an argument|)?
? I (just|only) (want|need) one answer (, no chat|and no conversation|, not a chat|). ; one-shot ; one question ; one shot mode ; prompt
? prompt on the command line ; single question ; non-interactive ; quick question from the shell
? can hokku (answer|run) (without a chat|non-interactively|once and exit|just once)?
? I don't want (a chat|a conversation|the chat|to chat), (just|only) (one answer|an answer|a haiku).
? is there (a one-shot mode|a non-interactive mode|an option for the prompt)? ; does (hokku|it) take the prompt as an argument?
? can the prompt (be|come as) an argument? ; must I (chat|open the chat|enter the chat)?
? what do I write (in the shell|on the command line) to (get a haiku|ask something|get one answer)?
? is it possible to (ask|use hokku) without (entering|opening|starting) (the|a) chat? ; Give me an example of a prompt on the command line.

= -f FILE reads the prompt from a file.
@ (-f|--file) ; (-f|--file) ; (-f|--file) (FILE|prompt.txt|question.txt)
+ (read|take|load|get|fetch|import|pull) (the|a|my) (prompt|question) (from|out of) a (file|text file)
+ use a (prompt file|file as the prompt|text file as prompt|file as a prompt|file for the prompt|prompt from a file)
+ (give|pass) (hokku|the program) a (file with the prompt|prompt file|file that holds the prompt|prompt in a file)
+ (keep|store|write|have|put|save) (the|my|a long) prompt in a file ; (start|run) hokku with a prompt (from a file|file)
+ avoid typing (the|a long) prompt (on the command line|) ; use a prompt (that|which) (is|stands|lies) in a file
? (which|what) <opt> (reads|takes|loads|gets) the prompt from a file?
? can (the|my|a) prompt (be in|come from|be read from|stand in|be taken from) a (file|text file)?
? can hokku (read|take|load) (the|a|my) prompt from a (file|text file)? ; I have (my|the|a long|a) prompt in a (file|text file).
? My prompt is (in|stored in|saved in|written in) a (file|text file). ; prompt file ; prompt from file ; prompt from a text file ; file as prompt
? where do I (give|name|put) the prompt file? ; how is a prompt (read|loaded) from a file? ; how can a prompt be (read|loaded|taken) from a file?
? is there (an option|a flag|a switch) for a prompt file?
? My prompt is too long (for the command line|to type|for the shell).
? I don't want to type the (prompt|long prompt) (each time|on the command line|every time). ; is it possible to (read|take) the prompt from a file?
? I wrote my prompt (into|in|to) a file (with an editor|), how does hokku (get|read|take) it? ; does hokku (accept|take) prompt files?
? prompt.txt contains my prompt, how do I use it? ; how do I give a prompt file to hokku? ; what reads the prompt from a file?
? the prompt should come from a file ; can I write the prompt in (an|my) editor and use the file?

= --device cuda runs on the GPU, --device cpu on the processor; auto picks by itself.
@ --device ; --device (cpu|cuda|auto|cuda:1) ; cuda
+ (use|run on|choose|pick|select|force|compute on|work on|switch to|take|run hokku on|move to|calculate on) (the|my|a|only the) (GPU|graphics card|video card|CPU|processor|device|graphics processor|second GPU|NVIDIA card|accelerator|H200|card)
+ (run|use|start) (hokku|the model|it) (without a GPU|without a graphics card|on the CPU|on the GPU|on the processor|with CUDA|without CUDA|on the other card|on CPU only|on a particular GPU)
+ (choose|switch|pick|decide) between (GPU and CPU|CPU and GPU|the cards|processor and graphics card) ; run on the second (GPU|card)
+ (avoid|not use|leave alone|turn off|disable|stop using|ignore|switch off) the (GPU|graphics card|video card)
+ (select|set|specify|change|name) (the|a|another|which) (device|GPU|card|hardware)
+ (say|tell hokku|decide) (which|what) (device|GPU|card|hardware) to (use|run on) ; (use|turn on|enable) CUDA
+ (make|let) (hokku|it) (use|run on) (the|my) (GPU|graphics card|CPU|processor|card) ; (speed it up|accelerate it) with (a|the|my) (GPU|graphics card)
? do I need a (GPU|graphics card|video card|special card|NVIDIA card)?
? (does|can|will|could) (hokku|it|this|the program) (run|work) (without|with|on) a (GPU|graphics card|video card)?
? does (it|hokku) (need|use|require|want|support|have) (a GPU|my GPU|a graphics card|the graphics card|the GPU|CUDA)?
? can (you|hokku|it) run on (the CPU|a CPU|the GPU|my GPU|a plain processor|my graphics card)?
? (which|what) <opt> (chooses|selects|picks|sets) the (device|GPU|card|CPU|processor)?
? My (computer|machine|laptop) has no (GPU|graphics card|video card). ; I have (two|several|four) (GPUs|cards|graphics cards).
? I have (no|a|an NVIDIA|a big|a good) (GPU|graphics card|card|video card). ; gpu ; cpu ; GPU or CPU ; graphics card ; CPU only ; gpu support ; device
? is a (GPU|graphics card|video card) (needed|required|necessary|used)?
? how (does|do I know|can I choose) (hokku choose the device|which device is used|where it runs)?
? I want (it on|to use|only|hokku on) the (GPU|CPU|graphics card|processor). ; will it use my (GPU|graphics card|video card)?
? is the GPU used (automatically|by itself|by default)?
? I don't want (to use the GPU|the GPU used|it on the GPU|hokku on my GPU). ; My (GPU|graphics card) is (busy|in use|needed elsewhere|too small).
? where do I (choose|set|select) (the device|the GPU|GPU or CPU)? ; is there (a switch|an option|a flag) for the (GPU|CPU|device|graphics card)?
? can the (device|GPU) be (chosen|selected)? ; does hokku (know|use|support) (NVIDIA cards|CUDA)?

= -t N sets the number of CPU threads.
@ (-t|--threads) ; (-t|--threads) ; (-t|--threads) (N|4|8|16)
+ (set|change|choose|limit|increase|raise|lower|reduce|specify|pick|adjust|control) (the number of|how many|the) (threads|CPU threads|processor threads|cores|CPU cores)
+ use (more|all|fewer|only two|only four|four|eight|just some|several|less) (cores|threads|CPU cores|of my cores|processor cores)
+ (run|work) (with|on) (four|eight|more|fewer|several|all|two) (threads|cores) ; (keep|leave) (some|a few) cores (free|for other programs)
+ (make|let) hokku use (more|fewer|all) (cores|threads) ; (say|tell hokku|choose) how many (threads|cores) to use
+ (use|exploit) (all the cores of my CPU|my whole processor) ; run (in parallel|multithreaded|single-threaded|on one core)
+ (take|occupy) (fewer|less|more) (cores|threads)
? (which|what) <opt> (sets|changes|limits|controls) the (threads|number of threads|cores|thread count)?
? how many (threads|cores) (are used|does hokku use|does it use|can I use|should I use|do you use)?
? can (the number of threads|the threads|the cores) be (changed|set|limited)? ; My (CPU|processor|machine) has (many|eight|16|64|more) cores.
? threads ; number of threads ; cpu threads ; thread count ; number of cores ; more threads ; multithreading ; cores
? where do I set the (threads|number of threads|thread count)? ; hokku uses (too many|all my|only one|too few) (cores|threads).
? is there an option for (threads|cores|the number of threads)?
? I want (it|hokku) to use (only two|all|more|fewer|four) (cores|threads). ; can hokku use (several|all|all my|many) (cores|threads)?
? can hokku use more than one (core|thread)?
? does (it|hokku) use (threads|several cores|all cores|all my cores|more than one core)? ; is (hokku|it) multithreaded?
? how is the number of threads (set|chosen)?

= --json prints one object: text, token ids, finish reason, timings and cached tokens.
@ --json ; JSON output
+ (get|print|make|write|produce|output|have|emit|return|receive) (JSON|json|JSON output|an answer as JSON|the answer in JSON|the output as JSON|machine-readable output|structured output|a JSON object)
+ (get|see|print) the token ids (of an answer|of the answer|of your answer|)
+ use the (output|answer) in (a program|another program|my program|Python|code)
+ (get|see|know|learn) (the finish reason|why the answer ended|why generation ended|the timings and token ids|the cached tokens)
+ (parse|process|read) the (output|answer|result) (with|in|by) (a program|jq|Python|another program|a machine)
+ (have|get) the (answer|output|result) in a form (for programs|that programs can read|a machine can read)
+ (format|convert|turn) the (answer|output) (as|to|into) JSON ; (get|have) (structured|machine readable) (answers|output|data)
? can (hokku|it|you) (print|write|output|give|return|make|speak|produce) (JSON|json|structured output|machine-readable output)?
? is there (a JSON mode|JSON output|a machine-readable format|a format for programs|structured output)?
? (which|what) <opt> (prints|gives|makes|is for|writes) (JSON|json|machine-readable output|the token ids of the answer)?
? json ; JSON output ; json mode ; output as JSON ; machine readable output ; structured output ; finish reason ; what is in the JSON (object|output)?
? I (want|need) (JSON|json|the answer as JSON|machine-readable output|structured data).
? how can the (output|answer) be (parsed|read by a program|printed as JSON)?
? I want to (parse|process) the output (with a program|in Python|). ; My program (should|must|has to) read the answer.
? does (hokku|it) (support|know|have|speak) (JSON|json)? ; what does the JSON (contain|hold|look like)? ; where do I see the finish reason?
? how do I find out why the answer ended? ; I don't want plain text but JSON.

= -q is quiet: it leaves out the banner and other decoration.
@ (-q|--quiet) ; (-q|--quiet) ; (the|) quiet mode
+ (hide|turn off|remove|suppress|omit|leave out|switch off|skip|disable|drop|get rid of) (the banner|the decoration|all decoration|the decorations|the greeting|the start message|the banner at the start|the startup text|the extra output|the line at the start)
+ make (hokku|the program|it) (quiet|silent|less chatty at start|print less|say less at start)
+ (get|have|see|print) (only|just|nothing but) the (answer|answer itself|bare answer|text of the answer)
+ (start|run|use) <prog> (quietly|silently|in quiet mode|without the banner|without a banner|without decoration|without extra output|without frills)
+ (see|show) no (banner|decoration|greeting|extra output|startup message) ; (reduce|minimise|minimize) the (decoration|extra output|noise|chatter)
+ (be|keep it) quiet
? (which|what) <opt> (hides|removes|turns off|suppresses|leaves out) the (banner|decoration|greeting|startup text)?
? can (the banner|the decoration|the greeting|the startup line) be (hidden|turned off|removed|switched off|left out|suppressed)?
? I don't (want|need|like) (the banner|the decoration|a banner|that line at the start|any decoration).
? is there a (quiet|silent) (mode|option|flag|switch)? ; quiet ; quiet mode ; silent ; silent mode ; no banner ; without the banner ; hide banner
? less output ; The banner (annoys me|is annoying|disturbs me|bothers me|is in the way). ; can (hokku|it) be (quiet|silent|quieter|less noisy)?
? how is the banner hidden? ; how can the banner (be hidden|be removed)?
? I (want|need) (only|just) the answer, (no banner|without a banner|no decoration|nothing else).
? hokku prints too much (decoration|stuff at the start|around the answer). ; what is the banner and how do I hide it?
? I'd like (a quiet|a silent) hokku. ; does hokku have a quiet mode?

= -v is verbose: it says more, for example the random seed.
@ -v ; (the|) verbose mode
+ (see|get|print|show|have) (more details|more information|the random seed|which seed was used|the seed that was used|more output|more messages|extra information|what hokku is doing|what happens inside)
+ make (hokku|the program|it) (verbose|say more|print more|tell more|more talkative about its work)
+ (find out|know|learn|see|discover) (which|what) (random |)seed (was used|was taken|hokku used|you used|it picked|made this haiku|gave this answer)
+ (turn on|use|enable|switch on|start) (the |)verbose (mode|output|messages)
+ (run|start|use) <prog> (verbosely|in verbose mode|with more output|with details)
+ (get|see) (detailed|verbose|more detailed|more verbose) (output|messages|information)
+ (print|show|reveal|see|get) the (random seed|seed of an answer|seed of this answer)
? (which|what) (random |)seed (was used|did you use|was that|was taken|made this|gave this answer|did it use)?
? (which|what) <opt> (prints|shows|tells) (the random seed|more details|more|the seed that was used)?
? can (hokku|it) (say|print|tell|show) more (details|about what it does|)? ; can I see the (random seed|seed that was used|seed of this answer)?
? verbose ; verbose mode ; verbosity ; more output ; more details ; seed of the last answer ; is there a verbose (mode|option|flag|switch)?
? how can the (used|random) seed be (seen|shown|found out|printed)? ; hokku says too little.
? I want (more details|more information|to know the seed that was used|verbose output).
? I liked that haiku, which seed made it? ; where (is|do I see|can I find) the random seed (shown|printed|)?
? does hokku (tell|show|print) (the random seed|the seed it used|which seed it used)? ; what is hokku doing inside, can it tell me?
? how do I get hokku to tell me more? ; I forgot to set a seed, which one was it?

= --lines makes each line of stdin its own prompt; the answers come in order.
@ --lines
+ (ask|run|answer|process|send|handle|work through|submit|put) (many|several|hundreds of|a lot of|a thousand|a list of|lots of|multiple|100) (prompts|questions) (at once|from a file|in one go|one after another|in a batch|together|in one run|)
+ (treat|use|take|read) (each|every) line as (a|its own|a separate|an own|one|a new) (prompt|question)
+ (process|answer|run) a (batch|list|file) of (prompts|questions) ; (give|feed|send) hokku (many|a list of|several|a file of) (prompts|questions)
+ (have|get) (each|every) line (of a file|of stdin|of my list|) answered (separately|by itself|on its own|) ; (run|do) batch (processing|jobs)
+ (put|write|have) one prompt (per|on each|on every) line
+ (run|answer) (independent|separate|unrelated) (prompts|questions) (together|from stdin|line by line)
? can hokku (answer|run|process|do|take|handle) (many|several|multiple|a list of|hundreds of|a batch of) (prompts|questions) (at once|in one go|in one run|)?
? (which|what) <opt> makes (each|every) line (a|its own|a separate) prompt?
? (which|what) <opt> (treats|takes) (each|every) line as (a|its own|a separate) prompt?
? I have (a list of|many|a hundred|a thousand|a file of|lots of) (prompts|questions).
? batch of prompts ; many prompts ; one prompt per line ; batch mode ; batch processing ; list of questions ; several prompts at once
? My file has (a|one) (prompt|question) (on|in) (each|every) line. ; are (many|several) (prompts|questions) possible at once? ; is there a batch mode?
? how can (many|several|a hundred) (prompts|questions) be (answered|run|asked) (at once|in one go)? ; do the answers come in order?
? in (which|what) order do the answers of many prompts come? ; does (hokku|it) (have|support) (batches|batch processing|a batch mode)?
? I don't want to start hokku for each (question|prompt) (again|).

= --turns makes each line of stdin the next turn of one conversation.
@ --turns
+ (script|play|feed|automate|simulate|run through|act out) a (whole|complete|full|entire|scripted) (conversation|chat|dialogue|talk) (from stdin|from a file|from a script|)
+ (give|send|write|feed|put|prepare) (all|all the|all my|several|the) turns (on stdin|in a file|at once|from a file|in advance|beforehand)
+ (use|take|treat|read|make) (each|every) line as (the|a) next turn
+ (have|hold|run|lead) a conversation (from a script|without typing|from a file of turns|by script|line by line from stdin|automatically from a file)
+ (test|check) a (whole conversation|dialogue|chat) (from|in|with) a script
+ (type|send) my side of the conversation from a file ; (let|make) (each|every) line (follow|continue) the (one before|same conversation)
+ (play back|play) (my|the) side of a (conversation|chat|dialogue) from a file
? can (a|the) (whole conversation|conversation|chat|dialogue) (come from|be read from|be in|be fed from) (a file|stdin|a script)?
? (which|what) <opt> makes (each|every) line (the|a) next turn? ; (which|what) <opt> (treats|takes) (each|every) line as (the|a) next turn?
? I have a (conversation|dialogue|script of turns|list of turns) in a file, one turn (per|on each) line. ; conversation from a file ; turns from stdin
? scripted conversation ; turns ; one turn per line ; a conversation from stdin ; scripted chat
? can I (script|automate|prepare) a (conversation|chat|dialogue)?
? how is a conversation scripted? ; how can a conversation (be scripted|be fed from a file|be automated)?
? does hokku (play|run|take) scripted (conversations|chats|dialogues)?
? I want (all lines|the lines) to (belong to|be turns of) one conversation. ; each line should be the next turn
? is there a way of scripting a (chat|conversation)? ; what if the lines belong to one conversation? ; I'd like to play a conversation from a script.

= --dry-run prints the plan: bytes for weights, KV cache and scratch, and the largest context that fits.
@ --dry-run ; a dry run
+ (see|know|check|find out|learn|estimate|calculate|compute|tell|test|work out) (how much memory (is needed|it needs|a model needs|the model needs|hokku needs|it will take|I need|it would use)|if a model fits|if the model fits|whether a model fits|whether it will fit|how much RAM it takes|the memory needs|how big a model is in memory|the largest context that fits)
+ plan the memory (use|)
+ (see|print|get|show|make) (the|a) (memory plan|plan|memory estimate|plan without running|bytes for the weights|memory needed|memory requirements)
+ (check|test|plan) (the memory|memory|memory use) (before|without) (loading|loading the model|running|running the model|starting)
+ (find|see|know|find out) the (largest|biggest|longest|maximum) context (that fits|that fits in memory|my memory allows|possible|for my card|my card can hold)
+ (try|plan) without (running|really running|loading anything) ; (do|make|start) a (dry run|trial run|test run without loading)
? how much (memory|RAM|VRAM|video memory|GPU memory|space in memory) (does it need|do I need|does hokku need|does a model need|is needed|will it take|does it take|will be used|is required|would it use|does the model take|must I have)?
? (will|does|can|would) (it|the model|my model|this model|a model) fit (in memory|into memory|on my card|on my GPU|in my RAM|into my computer|)?
? Do I have (enough|sufficient) (memory|RAM) (for a model|for this model|)?
? is my (memory|RAM|card|GPU|computer|machine) (big enough|large enough|enough|sufficient) (for the model|)?
? (which|what) <opt> (prints|shows|plans|estimates|tells) (the memory|the memory plan|how much memory is needed|the plan)? ; memory needed
? memory plan
? memory requirements ; memory usage ; RAM needed ; how much memory ; how big is the KV cache?
? how many bytes (do|does) the (weights|KV cache|scratch) (take|need)?
? can (hokku|I) (plan|check|estimate) the memory (first|beforehand|in advance|before loading)?
? what is the largest context (that fits|I can have|that my card can hold)?
? I (fear|am afraid|worry|think) (the model|it) is too (big|large) (for my machine|for my memory|for my card).
? I only have (8|16|4|24) GB (of memory|of RAM|), will it (fit|do|be enough)?
? how can the memory need be (seen|known|estimated) (beforehand|before loading)? ; I want to know the memory before I load the model.
? is there a plan of the memory?

= -b N sets the batch size: how many prompt tokens are read at once.
@ (-b|--batch-size) ; (-b|--batch-size) ; (-b|--batch-size) (N|512|256|2048) ; (the|) batch size
+ <set> (the|a|another) batch size
+ (set|change|choose|say|control) (how many|the number of) (prompt |)tokens (that |)(are|to be|should be|get) (read|processed) at once
+ (increase|raise|lower|reduce|enlarge|double) the batch (size|)
+ (read|process) (more|fewer) (prompt |)tokens at (once|a time|the same time|one time)
+ use (a bigger|a smaller|a larger|bigger|smaller|larger) (batch|batches|batch size)
+ (read|process) the prompt in (bigger|smaller|larger) (pieces|batches|chunks|steps)
+ change how the prompt is (read|split into batches|chunked)
? (which|what) <opt> (sets|changes|controls) the batch (size|)? ; what is (the|a) batch size (for|)?
? how many (prompt |)tokens (are|does hokku) read at (once|a time)? ; can the batch size be (changed|set|raised|lowered)? ; batch size
? size of the batch ; prompt batch ; batch ; how (large|big) is a batch?
? where do I set the batch size? ; I want (a bigger|a smaller|another|a larger) batch (size|). ; how many tokens are in a batch?
? is there an option for the batch size? ; how is the batch size (set|changed)? ; does a (bigger|larger) batch read the prompt faster?
? in what pieces is the prompt read? ; what's a good batch size?

= -ctk and -ctv set the type of the KV cache: f16 or q8_0.
@ (-ctk|-ctv) ; (-ctk|-ctv) ; (-ctk|-ctv) (f16|q8_0)
+ (make the KV cache smaller|shrink the KV cache|reduce the KV cache|halve the KV cache|compress the KV cache|squeeze the KV cache|save memory in the KV cache)
+ (quantise|quantize) (the KV cache|the cache|keys and values|the keys|the values)
+ <set> the (cache type|type of the cache|type of the KV cache|KV cache type|KV type|format of the KV cache|precision of the KV cache|number format of the cache)
+ (use|have|get|switch to|set) (q8_0|8 bit|8-bit|f16|eight bits|a quantised|a smaller|an 8-bit|a q8_0|an f16) (for the KV cache|in the KV cache|KV cache)
+ (store|keep) (the keys and values|keys and values|the KV cache) in (8 bits|q8_0|f16|fewer bits|less memory)
+ (lower|reduce|choose) the precision of the (KV cache|cache) ; (spend|use|take) less memory (on|for) the KV cache
? (which|what) <opt> (sets|changes|chooses|quantises|shrinks) the (type of the KV cache|KV cache type|cache type|KV cache)?
? can the (KV cache|cache) be (quantised|quantized|made smaller|smaller|compressed|q8_0|in 8 bits|shrunk)?
? The KV cache (is too big|takes too much memory|is too large|needs too much memory|uses too much memory).
? kv cache type ; cache type ; type of the KV cache ; quantised KV cache ; KV quantisation ; q8_0 cache ; smaller KV cache ; 8 bit cache
? (which|what) types (can the KV cache have|of KV cache are there|of cache are there)? ; is there a (smaller|quantised|quantized|8-bit) KV cache?
? I want a (smaller|quantised|q8_0|8-bit) KV cache. ; how is the KV cache quantised? ; how can the KV cache (be quantised|be made smaller|be shrunk)?
? in (which|what) (type|format|precision) is the KV cache (kept|stored)? ; does hokku (support|know) (a q8_0|a quantised|an 8-bit) (KV |)cache?
? what's the difference between f16 and q8_0 for the cache?

= -r TEXT stops the answer at that text; it can be given several times.
@ (-r|--reverse-prompt) ; (-r|--reverse-prompt) ; (-r|--reverse-prompt) (TEXT|END|User:)
+ (stop|end|halt|finish) (the answer |the output |you |generation |)at a (word|text|certain word|certain text|given text|string|stop word|phrase|particular word|mark|marker)
+ (set|give|use|define|add|specify|choose) (a|several|two|my own|one or more) stop (word|text|string|sequence|words|strings|texts|sequences)
+ (stop|end|break off|finish) (when|as soon as|once|if) (a certain word|a word|some text|a text|a certain text|the word END|a phrase) (appears|comes|is written|comes up|shows up|occurs)
+ (make|let) (you|the model|the answer) (stop|end) at a (word|certain word|text|phrase|marker)
+ (have|use) (several|more than one|many) stop (words|texts|strings|sequences) ; (use|give|set) a reverse prompt
+ (cut|end) the answer at a (word|line|text|phrase)
? can (the answer|you|it|the model|hokku) (stop|end|halt) at a (word|text|certain word|certain text|phrase|string)?
? (which|what) <opt> (stops|ends) (the answer|the output|it) at a (word|text|string|phrase)? ; stop word ; stop words ; stop string ; stop text
? stop sequence ; stop sequences ; reverse prompt ; what is a reverse prompt?
? I want (the answer|it|you|the output) to (stop|end) (at|when it reaches|when you write|at the word) (END|a word|a certain word|a text|my stop word).
? can I (give|set|use|have) (several|more than one|a|many) stop (words|texts|strings|sequences)?
? are (stop words|stop strings|stop sequences|stop texts) (possible|supported)?
? how is a stop (word|text|string) (set|given)? ; how can a stop (word|text|string) (be set|be given)?
? does hokku (support|know|have) (stop words|stop strings|stop sequences)?
? where do I (put|give|set) the stop (word|text|string)? ; the answer should (stop|end) at a (word|certain word|certain text)
? what stops the answer at a (word|text)?

= --top-k N keeps only the N likeliest tokens; the default is 40.
@ --top-k ; --top-k (N|20|10) ; (top-k|top k|top_k) ; top-k sampling
+ (keep|consider|use|take|allow|sample from|choose from|pick from|look at) only the (likeliest|most likely|most probable|N likeliest|best 20|forty likeliest|best few|N best|top 10) (tokens|words|candidates)
+ <set> top-k
+ (limit|restrict|reduce|cap) (the candidates|the number of candidates|the choice|sampling) to the (likeliest|best|most likely|N likeliest) (tokens|ones|words)
+ (set|limit|change|choose) (the number of|how many) (candidates|candidate tokens|tokens to choose from|likeliest tokens) ; (use|do) top-k (sampling|)
+ choose among (fewer|only a few|a fixed number of|only 10) (tokens|words|candidates)
+ (ignore|cut off|drop|throw out) all but the (likeliest|best|most likely|N likeliest|top 20) tokens
? what is (top-k|top k) (for|sampling|)? ; (which|what) <opt> (keeps|takes) only the (likeliest|most likely|N likeliest|best) tokens?
? what is the (default|default value|usual value|standard value) (of|for) top-k?
? how many (candidates|tokens|words) (are|do you) (considered|kept|choose from|consider|pick from)?
? top k ; topk ; top-k default ; number of candidates ; how does top-k (work|sampling work)? ; what (does|would) top-k (do|change)?
? can the number of candidates be (limited|set)? ; what happens with (a small|a large|a low|a high) top-k? ; what is a good (value for |)top-k?
? I want only the (10|20|best|likeliest) tokens to be considered.

= --top-p P keeps the likeliest tokens that sum to P; the default is 0.95.
@ --top-p ; --top-p (P|0.9|0.5) ; (top-p|top p|top_p) ; nucleus sampling
+ use (nucleus sampling|top-p|top-p sampling|the nucleus) ; <set> (top-p|the nucleus|the nucleus size)
+ (keep|consider|use|take|sample from) (the|only the) (likeliest|most likely|best) tokens (that sum to P|that make up 90 percent|up to a total probability|with a total probability of P|whose probabilities sum to 0.9|up to a sum|that sum to 0.9)
+ (do|turn on|enable|switch on|tune) nucleus sampling ; (limit|cut|restrict) the (total|sum of the|summed|cumulative) (probability|probabilities)
+ (keep|cut) (tokens|candidates) by (cumulative|summed|total) probability
? what is (top-p|top p|nucleus sampling) (for|)?
? (which|what) <opt> (is|does|sets|makes|turns on) (nucleus sampling|the nucleus|the total probability)?
? what is the (default|default value|usual value|standard value) (of|for) (top-p|nucleus sampling)? ; nucleus ; nucleus sampling ; top p ; topp
? top-p default
? how does (top-p|nucleus sampling) work? ; is there nucleus sampling? ; can (you|hokku) (do|use) (nucleus sampling|top-p)?
? what (does|would) top-p (do|change)? ; what happens with (a small|a low|a high|a large) top-p? ; what is a good (value for |)top-p?
? does hokku (have|support|know) (nucleus sampling|top-p)? ; cumulative probability ; I want nucleus sampling.

= --min-p P drops tokens less likely than P times the best; the default is 0.05.
@ --min-p ; --min-p (P|0.1|0.02) ; (min-p|min p|min_p) ; min-p sampling
+ (drop|remove|cut|exclude|discard|throw out|filter out|skip|forbid|cut off|suppress|eliminate) (the |)(unlikely|improbable|very unlikely|rare|least likely|hopeless) (tokens|words|candidates)
+ <set> min-p
+ (drop|cut|remove) tokens (that are |)(much less likely than the best|far below the best one|less likely than the best|relative to the best)
+ (use|do|turn on) min-p (sampling|)
+ (set|choose|raise|lower) (the|a) (minimum probability|probability threshold|smallest probability|lowest probability|least probability|probability floor)
+ (avoid|prevent|get rid of) (unlikely|improbable|very unlikely) (tokens|words)
+ keep (out|away) (unlikely|improbable) tokens ; cut the (tail|long tail) of unlikely tokens
? what is (min-p|min p) (for|)? ; (which|what) <opt> (drops|removes|cuts|filters) (the |)(unlikely|improbable|least likely) tokens?
? what is the (default|default value|usual value|standard value) (of|for) min-p? ; min p ; minp ; min-p default ; minimum probability
? probability threshold ; how does min-p (work|sampling work)?
? can (unlikely|improbable) (tokens|words) be (dropped|removed|excluded|cut|filtered)? ; what (does|would) min-p (do|change)?
? what happens with (a small|a low|a high|a large) min-p? ; I don't want (unlikely|improbable|very unlikely) (tokens|words).
? what is a good (value for |)min-p? ; when is a token too unlikely?

= --repeat-penalty N makes repeated tokens less likely; 1 means off.
@ --repeat-penalty ; --repeat-penalty (N|1|1.1|1.2) ; (a|the|) (repeat|repetition) penalty
+ (stop|avoid|reduce|prevent|discourage|fight|punish|penalise|penalize|lessen) (repetition|repetitions|repeated words|loops|repeating|the repetition|repeated tokens|the same words over and over)
+ (stop|keep|prevent) <bot> from (repeating (itself|yourself|words|the same things)|going in circles|looping|saying the same thing over and over)
+ make (you|the model|answers|it) (less repetitive|repeat less|more varied in words|repeat itself less)
+ <set> the (repeat penalty|repetition penalty|penalty for repetition|penalty on repeated tokens) ; make repeated (tokens|words) less likely
+ (turn off|disable|switch off) the (repeat|repetition) penalty
+ (break|get out of|escape) a loop of (words|repetitions) ; (get|have) (less|fewer|no) (repetition|repetitions|repeated words)
? why do you (repeat yourself|say the same thing over and over|repeat the same words|go in circles|loop|repeat words)?
? You (repeat yourself|are repeating yourself|say the same thing over and over|go round in circles|loop|keep repeating yourself|are stuck in a loop|keep saying the same) (all the time|).
? The model (repeats|keeps repeating) itself.
? (which|what) <opt> (stops|avoids|reduces|prevents|punishes|penalises|fights) (repetition|repetitions|repeated words|loops)?
? can (repetition|repetitions|loops) be (avoided|stopped|prevented|reduced|punished)? ; repeat penalty ; repetition penalty ; repetition
? avoid repetition ; no repetition ; loops ; penalty for repetition
? is there (a penalty for repetition|a repetition penalty|something against repetition|a repeat penalty|a cure for repetition)?
? Your answers are (repetitive|so repetitive|full of repetition). ; I don't want (repetition|repetitions|the same words again|you to repeat yourself).
? can you stop repeating yourself? ; what can be done against (repetition|repetitions|loops)?
? The same (word|words|sentence|line|phrase) (comes|appears|turns up) again and again. ; what does a repeat penalty of 1 (mean|do)?
? do you get stuck in loops? ; how do I turn off the repeat penalty? ; stop repeating yourself

= --samplers LIST sets which samplers run, and in which order.
@ --samplers ; --samplers LIST ; (the|) (sampler order|sampler chain|samplers)
+ <set> the (order of the samplers|sampler order|samplers|sampler chain|list of samplers|order of sampling|sequence of samplers|sampling chain|sampling order)
+ (choose|select|pick|say|decide|list|name) (which|the) samplers (to use|that run|run|to run|are used|should run)
+ (reorder|rearrange|sort|list|swap) the samplers
+ (turn off|leave out|remove|skip|drop|disable|switch off) (a sampler|one sampler|some samplers|one of the samplers)
+ (use|run|apply|have) (only some|other|only certain|just one of the|fewer|only two) samplers
+ (run|apply|use) the samplers in (another|a different|my own) order
+ put (one sampler before another|temperature first|top-k before top-p|the samplers in order) ; (change|decide) what sampler (runs|comes) first
? (which|what) <opt> (sets|chooses|orders|lists|selects) the (samplers|sampler order|order of the samplers)?
? in (which|what) order do the samplers run? ; can the (order of the samplers|samplers|sampler order|sampler chain) be (changed|set|chosen)?
? sampler order ; samplers ; order of samplers ; sampling order ; sampler chain ; list of samplers
? which samplers (run|are used|are there)? ; can I (choose|order|reorder|pick|turn off) (the|some) samplers?
? (which|what) sampler (comes|runs|is) first? ; I want (only some samplers|another order of the samplers|other samplers|a different sampler order).
? how are the samplers ordered? ; how can the samplers (be ordered|be chosen)? ; does the order of the samplers matter?

= -l ID+N or ID-N makes a token more or less likely.
@ (-l|--logit-bias) ; (-l|--logit-bias) ; (-l|--logit-bias) (ID+N|ID-N|42+1|15-100) ; a logit bias
+ (ban|forbid|favor|favour|block|prefer|promote|suppress|boost|punish|discourage|encourage|outlaw|exclude) (a|one|some|a certain|a particular|a single) token
+ make (a|one|some|a certain|a particular) token (more|less) (likely|probable) ; <set> (a|the) logit bias
+ (raise|lower|increase|decrease|change|boost|shift|nudge) (the probability of a|the likelihood of a|the logit of a|the chance of a|the odds of a) (token|certain token|single token)
+ (stop|keep|prevent) (you|the model) from (using|writing|choosing|saying) (a|a certain|one) token ; (add|give) a bias to (a token|one token|a logit)
+ (use|apply) (a |)logit bias ; never (see|get|use) a certain token
? can I (ban|forbid|block|favour|favor|boost|suppress) (a|a certain|one) token?
? can a token be (banned|forbidden|favoured|favored|made more likely|made less likely|blocked|boosted|made impossible)?
? (which|what) <opt> (bans|forbids|favours|makes likelier|blocks|biases) a token? ; what is a logit bias (for|)?
? logit bias ; ban a token ; token bias ; forbid a token ; bias ; banned tokens
? I (don't want|never want|want) (a certain|one|this|that) token (in the answer|to appear|). ; is there a (bias|logit bias) (for tokens|)?
? how is a token banned? ; how can a token (be banned|be forbidden|be favoured|be made more likely)?
? you should never use a certain token ; is it possible to (forbid|ban|favour|favor) a token? ; I hate that token.
? does hokku (have|know|support) (a logit bias|token bias|logit biases)? ; how do I make one token more likely than another?

= --ignore-eos goes on when the model wants to end.
@ --ignore-eos
+ ignore (the end of the answer|the end token|the end-of-text token|the eos|EOS|eos tokens|the stop token|the end of text|the model's wish to end|the end mark)
+ (go on|keep going|continue|write on|carry on|keep generating|keep writing) (when the model wants to (end|stop|finish)|past the end|past the end token|after the end token|beyond the end of the answer|without end|forever|endlessly)
+ (stop the model from ending|keep the model from ending|prevent the end of the answer|forbid the end token)
+ (make|let|force) (the model|you) (to write endlessly|never end|write forever|go on past the end|run past the end)
+ get (an endless|a never ending) (answer|text|output) ; (generate|write) past the end (token|of the answer)
? can (the model|hokku|you) (ignore|skip|go past|write past) (the end token|the end|its end|the eos)?
? (which|what) <opt> ignores the (end|end token|eos|end of the answer)? ; eos ; ignore eos ; end token ; EOS token ; never ending answer
? endless output ; I (want|need) (an endless|a never ending) (answer|text|output).
? The model (ends|wants to end) but it should go on. ; can the end token be (ignored|skipped|forbidden)?
? what if the model wants to end, but I don't? ; is there a way of ignoring the end? ; how is the end token ignored?
? how can the end token be ignored?
? does hokku ignore the end token? ; I don't want the model to end. ; can you write (forever|endlessly|without end)?

= --overflow says what happens when the context is full: error, drop or shift.
@ --overflow ; --overflow (error|drop|shift) ; (a|the) context (shift|overflow)
+ (go on|continue|keep talking|keep going|carry on|write on|chat on) (when|after|once|even if|although) the context is full
+ (choose|say|set|decide|control|define|change|pick) what happens (when|if|once|as soon as) the context (is full|overflows|runs over|runs out|fills up|runs full)
+ (drop|forget|remove|throw out) (old|the oldest|early|older) (turns|tokens|messages) when (the context is full|space runs out|the context runs over)
+ (shift|slide) the context (when it is full|window|) ; (use|turn on|enable) (a context shift|context shifting|a sliding window|a rolling context)
+ (handle|survive|avoid) (an overflow|a context overflow|an overflowing context|a full context)
+ (make|let) the context (shift|roll|slide|drop old turns) ; (avoid|prevent) an error when the context is full
+ (talk|chat) (without end|forever|beyond the context)
? what (happens|does hokku do|will happen|do you do|can I do|is done|should I do) (when|if|once) the context (is full|overflows|runs over|is used up|runs out|fills up)?
? The context is full (, what now|, how do I go on|, what can I do)? ; My context (is full|has run over|overflowed|ran out).
? (which|what) <opt> (says|decides|sets) what happens when the context is full?
? context overflow ; context full ; context shift ; sliding window ; full context ; overflow ; rolling context
? can (I|we|hokku|you) (go on|continue|keep talking) when the context is full?
? does (hokku|it) (shift|drop|forget) (old tokens|old turns|the beginning) (when the context is full|)?
? what if (the chat|our conversation|the conversation) (gets|becomes) (longer than|too long for) the context? ; how is a full context handled?
? is there a (context shift|sliding window)? ; what if we run out of context? ; I get an error when the context is full.
? how do I avoid the error of a full context? ; will you forget the beginning when the context is full?

= --chat-template NAME or --chat-template-file FILE replaces the model's chat template.
@ (--chat-template|--chat-template-file) ; (--chat-template|--chat-template-file) ; --chat-template (NAME|chatml)
@ --chat-template-file (FILE|my.jinja) ; (a|the) chat template
+ (change|set|replace|use another|choose|specify|swap|exchange|pick|select|give|override|use a different|use my own|supply|provide) (the|) (chat template|template|prompt template|model's template|model's chat template) (of the model|)
+ (read|load|take|get) the (chat |)template from a file
+ (use|give|write|supply|bring|try) (my own|another|a different|a custom|a certain|a named|a) (chat |)(template|template file)
+ use (chatml|a jinja template|a Jinja file|the chatml template|my jinja file)
+ (fix|repair|correct|override) (a wrong|the wrong|a missing|a broken) (chat |)template
+ (format|wrap) (the chat|messages|the turns) (differently|another way|with another template)
? (which|what) <opt> (sets|changes|replaces|gives|selects) the (chat |)template?
? can I (use|give|write|load|choose|have) (my own|another|a different|a custom|an own) (chat |)template?
? can the (chat |)template be (changed|replaced|read from a file|overridden|set|swapped)?
? The model has (no|the wrong|a broken|a bad) (chat |)template.
? chat template ; custom template ; template file ; jinja template ; prompt format ; own chat template ; another template
? what is (a|the) chat template (for|)? ; where do I (give|put|set) (the|my|my own) (chat |)template?
? I (wrote|have) (my own|a|another) (chat |)template (in a file|file), how do I use it?
? is there an option for the (chat |)template? ; how is the chat template (replaced|changed|set)?
? how can the chat template (be replaced|be changed)?
? does hokku (take|accept|support|allow) (my own|other|custom|jinja) (chat |)templates? ; I want (another|my own|a different) (chat |)template.
? I need the chatml (format|template). ; my template is in a file

= -no-cnv turns the chat template off; the text goes to the model as it is.
@ (-no-cnv|-cnv) ; -no-cnv
+ (turn off|disable|switch off|avoid|skip|deactivate|leave out|drop|stop using|not use|remove|bypass) the (chat template|chat mode|conversation mode|chat format|template)
+ (complete|continue|extend) (plain|raw|ordinary|a plain|bare|some raw) (text|texts)
+ (use|run) (hokku|the model) (without the chat template|without a template|without a chat template|in raw mode|for plain completion|as a plain text completer)
+ (send|give|pass|feed) (the |)(raw|plain|bare) (text|prompt|input) to the model
+ (send|give|pass) the (text|prompt) (as it is|unchanged|untouched|raw|verbatim)
+ (use|run|load) a (base model|model without a chat template|base model for completion) ; (do|use) (raw|plain|text|plain text) completion
+ have (my|the) text (go to the model|sent) (as it is|unchanged|raw|without a template)
? can I (turn off|switch off|disable|skip|leave out) the (chat template|template|chat mode|conversation mode)?
? can the (chat template|template|chat mode|conversation mode) be (turned off|disabled|switched off|left out|avoided|skipped)?
? (which|what) <opt> (turns off|disables|switches off) the (chat template|template|chat mode)?
? I don't want (a|the) (chat template|template|chat format). ; no template ; no chat template ; raw mode ; raw prompt ; plain text completion
? text completion ; base model ; without the chat template ; raw text ; completion mode
? is there a (raw mode|plain mode|completion mode|mode without a template)? ; is the chat template always (used|applied|on)?
? can (hokku|you|the model) (complete|continue) (plain|raw|ordinary) text? ; how does (the|my) text go to the model (as it is|unchanged)?
? I want to (send|give) the raw (text|prompt) to the model. ; I have a base model (without a chat template|), how do I use it?
? does hokku change my (text|prompt), and can I stop that? ; the model should get my text as it is

= -st answers a single turn and leaves.
@ (-st|--single-turn) ; (-st|--single-turn) ; (the|) single turn mode
+ (answer|do|take|play|run|have|allow) (a single|only one|just one|exactly one|one single) turn (and leave|and exit|and quit|and stop|)
+ (leave|exit|quit|stop|end) after (one|a single|the first) turn ; (end|stop|close) the (chat|conversation) after (one|a single|the first) turn
+ (make|let|have) hokku (leave|exit|quit|end) after (one|a single|the first) (turn|reply|answer)
+ limit the (chat|conversation) to (one|a single) turn
? (which|what) <opt> (answers|makes|is for|takes|allows) (a single|one|only one|just one) turn?
? (which|what) <opt> leaves after (one|a single|the first) turn? ; can (hokku|it) (leave|exit|quit|stop|end) after (one|a single|the first) turn?
? single turn ; one turn ; single turn mode ; only one turn ; exit after one turn
? is there a single turn mode? ; I want (only one|a single|just one) turn. ; how can the chat (end|stop|close) after (one|a single) turn?
? can the conversation be limited to (one|a single) turn? ; does hokku have a single turn mode? ; is it possible to have (only|just) one turn?
? what ends hokku after the first turn? ; I don't want a second turn.

= --prefill TEXT gives the start of the answer.
@ --prefill ; --prefill (TEXT|Sure|Yes)
+ (give|write|set|supply|choose|determine|provide|fix|put in|specify|type|dictate) (the|) (start|beginning|first words|opening|first word) (of|for) the <ans>
+ begin the answer (for you|with my words|with a given text|with certain words)
+ (make|let|have) (the answer|you|the reply|your answer|it) (begin|start) with (a word|certain words|my words|a given text|a text|a certain word|Yes|some words)
+ (put|lay) (words|the first words|a word) (in|into) (your|the model's) mouth
+ (start|begin|open) (the|your) (answer|reply|response) (myself|for you|with a text) ; prefill (the answer|an answer|the reply|your answer)
+ (force|decide) how the (answer|reply) (begins|starts)
? can I (give|write|set|choose|determine) the (start|beginning|first words) of (the|your) (answer|reply|response)?
? can the (answer|reply) (start|begin) with (my words|a given text|a certain word|certain words|what I want)?
? (which|what) <opt> (gives|sets|is for) the (start|beginning|first words) of (the|an) answer? ; prefill ; start of the answer
? beginning of the answer ; first words of the answer ; prefilled answer ; is there a way of (starting|beginning) the answer for you?
? I want (the|your) answer to (begin|start) with (Sure|Yes|a certain word|certain words|my words).
? Your answer should (begin|start) with (a certain word|my words|Yes). ; how is the (start|beginning) of the answer (given|set)?
? how can the (start|beginning) of the answer (be given|be set)?
? does hokku support (prefill|prefilling)? ; how do I put words into your mouth? ; what is prefilling?
? is it possible to begin the answer (myself|for the model)? ; where do I (write|give) the (start|beginning) of the answer?

= --think on, off or hide says whether thinking is used and shown.
@ (--think|/think) ; (--think|/think) ; (--think|/think) (on|off|hide)
+ (hide|show|turn off|turn on|switch off|switch on|disable|enable|see|suppress|stop|skip|display|control|activate|deactivate|remove) (the|your|) (thinking|thinking text|reasoning|thoughts|thinking of the model|train of thought|chain of thought)
+ (make|let|have) (you|the model) (think|think first|reason|think before answering|not think|answer without thinking)
+ (get|have|see) (answers|an answer|the answer) (without thinking|without the thinking|without the reasoning|with thinking|without thoughts)
+ (see|read|watch|show|hide) (what you think|your thoughts|the thoughts of the model|the model's thoughts|how you think|what the model thinks)
+ (stop|keep) (you|the model) from thinking (aloud|so long|) ; (use|run|load) a (thinking|reasoning) model (without its thinking|)
? can I (see|hide|turn off|turn on|switch off|read|stop|disable|show) (the|your|) (thinking|thoughts|reasoning|thinking text)?
? can (the|) (thinking|reasoning|thinking text) be (hidden|shown|turned off|switched off|disabled|turned on|seen)?
? The model (thinks|reasons) (too long|too much|aloud|all the time).
? (which|what) (option|command|switch) (hides|shows|turns off|turns on|controls) (the thinking|thinking|reasoning|the reasoning)? ; thinking
? thinking text ; reasoning ; chain of thought ; thinking off ; hide thinking ; no thinking ; thoughts
? I don't (want|need) (to see the thinking|the thinking|thinking|the thinking text|any thinking|the reasoning).
? is (the |)thinking (shown|used|hidden|on|off|visible)? ; where is the thinking?
? I (want|would like) to see (the thinking|what you think|your thoughts|the reasoning).
? does hokku (show|support|know) (thinking|reasoning|thinking models|reasoning models)? ; can you (think|reason) (first|before you answer)?
? how is thinking (turned off|hidden|switched off)? ; stop thinking aloud

= --logprobs N adds the N likeliest tokens and their log-probabilities.
@ --logprobs ; --logprobs (N|5|3)
+ (get|see|print|add|have|output|receive|include|show|return) (the|some|) (log-probabilities|logprobs|log probabilities|log probs) (of the answer|in the output|with the answer|for each token of the answer|in the JSON|)
+ (print|add|output|get) the (N|five|3|few) likeliest tokens (with|and) their log-probabilities
+ (add|have|include|print) (log-probabilities|logprobs|log probabilities) (to|in|with) the (output|answer|JSON)
+ (get|print|return) (log-probabilities|logprobs) (for|with) (every|each|the) (generated token|answer token|answer)
? can (hokku|it|you) (print|give|output|add|return|show) (log-probabilities|logprobs|log probabilities|the log-probabilities)?
? (which|what) <opt> (prints|adds|gives|shows) (log-probabilities|logprobs|the log-probabilities|log probabilities)? ; logprobs ; log-probabilities
? log probabilities ; logprob output ; I (want|need) (the |)(log-probabilities|logprobs|log probabilities) (of the answer|).
? are there (log-probabilities|logprobs) (in the output|)?
? how are (log-probabilities|logprobs) (printed|added to the output)? ; how can (log-probabilities|logprobs) (be printed|be added)?
? does hokku (have|support|give|know) (logprobs|log-probabilities)? ; where do I get (the |)(log-probabilities|logprobs)?
? can the likeliest tokens be (printed|added) with their log-probabilities? ; is it possible to get (logprobs|log-probabilities)?

= --color auto, always or never; NO_COLOR turns colour off too.
@ (--color|NO_COLOR) ; --color (never|always|auto) ; NO_COLOR ; the (colour|color) option
+ (turn off|disable|change|turn on|enable|switch off|switch on|remove|get rid of|avoid|force|control|set|stop|suppress|have|keep) (the|) (colors|colours|color|colour|coloured output|colored output)
+ (get|have|see|print) (plain|colourless|monochrome|black and white|uncoloured|uncolored|coloured|colored) (text|output)
+ (use|run|start) hokku (without|with|in) (colour|color|colours|colors)
+ (make|have) the (output|text|terminal) (plain|black and white|without colours|without colors|colourless|coloured|colourful|colorful)
+ (print|write) without (escape codes|colour codes|color codes|colours|colors)
? can (colour|color|the colours|the colors|colours) be (turned off|disabled|switched off|changed|removed|forced|turned on)?
? (which|what) (option|flag|switch|variable) (turns off|disables|controls|sets|changes|removes) (colour|color|the colours|the colors)?
? I don't (like|want|need) (colours|colors|the colours|the colors|colour|any color).
? color ; colour ; colors ; colours ; no colour ; no color ; without colours ; colour off ; coloured output ; black and white ; monochrome
? The (colours|colors) (are ugly|hurt my eyes|disturb me|are hard to read|look wrong|are annoying).
? why (is|are) (there no colours|there no colors|everything coloured|the output coloured|the text colored)?
? is there (colour|color|a way without colour|a switch for the colours|a black and white mode)?
? does (hokku|it) (use|have|respect|print|know) (colours|colors|NO_COLOR|colour|color)? ; I see strange escape codes (in my log|in the file|).
? My terminal (has no|can't show|does not like) (colours|colors|colour). ; how is (colour|color) turned off?
? how can (colour|color) (be turned off|be forced)?

= --no-history keeps no history of what you type.
@ --no-history
+ (keep|write|save|store|make|leave) no (history|history file|record of what I type|input history)
+ (turn off|switch off|disable|stop|avoid|deactivate|suppress) (the|) (history|history file|recording of my inputs|input history)
+ (use|run|start) hokku (without a history|without history|privately|in private|in private mode|without leaving traces)
+ (stop hokku from remembering what I type|keep my inputs secret|keep what I type private|leave no traces|leave no trace|hide what I type from the history)
+ (stop|keep|prevent) (hokku|it|the program) from (recording|storing|saving|keeping|logging|writing down) (what I type|my inputs|the history|my input|a history|my questions)
? can (the|) history be (turned off|disabled|switched off|avoided|left out)?
? I don't want (a history|any history|what I type to be kept|my inputs saved|my inputs recorded|what I type to be recorded|you to keep what I type|traces|hokku to record what I type).
? (which|what) <opt> (turns off|disables|stops|avoids) the history?
? no history ; private mode ; without history ; disable history ; history off ; incognito ; privacy
? is there a (private mode|private|way without history|switch against the history|secret mode|privacy option)?
? What I type is (private|secret|confidential). ; Nobody should see what I typed.
? does (hokku|it) (record|keep|store|log) what I type (and can I stop that|)?
? how is the history turned off? ; how can the history (be turned off|be switched off|be avoided)?
? My inputs should not be (kept|stored|saved|recorded).
? can I use hokku without leaving (a trace|traces)? ; must there be a history? ; I'd rather have no history.

= The history is kept in $XDG_STATE_HOME/hokku/history; Ctrl-R searches it.
@ (Ctrl-R|Control-R|Ctrl+R|ctrl r|^R) ; the (history|history file|input history)
+ (search|find|see|browse|look through|go through|read|open|look at|look up|search through|view|show|locate) (my|the) (history|old inputs|earlier inputs|input history|past inputs|history file|history of inputs|previous inputs)
+ (find|get back|repeat|reuse|recall|look for|search for|type again) (something|what|a question|a line|a command|an input|a message) (that |)I typed (before|earlier|yesterday|last week|some time ago)
+ (search|look) for (an old|an earlier|a former|a previous) (input|question|line|prompt)
+ (call up|recall|get back|bring back) (an old|an earlier|a previous|my last) (input|line|typed line|input line)
? where is (the|my|hokku's) (history|history file|input history) (kept|stored|saved|)?
? (which|what) key searches (the|my) (history|old inputs|inputs)?
? can I (search|find|see|look through) (my|the) (history|old inputs|earlier inputs|past inputs)? ; can the history be searched?
? is there (a history|an input history|a history search|a history file|a search in the history)?
? history ; history file ; search history ; input history ; old inputs ; my history ; history search
? what did I type (yesterday|before|earlier|last time)? ; I typed (something|a good question) (yesterday|last week|earlier) and want to find it.
? does (hokku|it) (keep|remember|have|store) (a history|my inputs|what I typed)?
? in which (file|directory|folder|place) is the history? ; where are my (old|earlier|past) inputs (kept|stored|)?
? where does hokku (keep|store|save|put|write) (the|its|my) (history|inputs)? ; what I typed before, where is it?
? how is the history searched? ; how can the history be searched? ; which file holds (the|my) history?

= Sessions and the history are kept in $XDG_STATE_HOME/hokku.
@ (XDG_STATE_HOME|$XDG_STATE_HOME) ; the (state|session) (directory|folder)
+ (find|see|locate|open|look into) the (folder|directory|place|path|location) (of|for|with) (the|my|) (sessions|saved sessions|saved chats|saved conversations)
+ (find|locate) (the|my) (session files|sessions on disk|files of my sessions|saved conversations on disk|session folder|session directory)
+ (back up|copy|move|delete) the (files of my sessions|session files|session folder|session directory|folder of the sessions)
+ know where (sessions|the sessions|saved chats|conversations) (are kept|are stored|go|are saved|lie on disk)
? where (are|on disk are) (the|my|) (sessions|session files) (kept|stored|saved|put|on disk|written)?
? where does (hokku|it|the program|the app) (save|keep|store|put|write) (the |my |its |)(sessions|chats|conversations|saved conversations|saved chats|state|session files)?
? (in which|in what|which|what) (folder|directory|place) (holds|has|keeps|contains) (the|my) sessions?
? in (which|what) (folder|directory|place|location) are (the|my|) (sessions|saved chats|session files|conversations)? ; session files
? session directory ; session folder ; path of the sessions ; location of the sessions ; state directory
? where on (my|the) (disk|computer|machine) are (the|my) (sessions|saved chats|conversations|saved conversations)?
? what is the path (of|to) (the|my) (sessions|session files|saved chats)?
? where do (sessions|saved chats|saved conversations) (go|end up|land|live|get stored)?
? I want to (back up|copy|delete) my (session files|sessions folder). ; which directory does hokku use for sessions?
? what does hokku (write|leave) on my disk? ; where do you (keep|store) (sessions|conversations)? ; I can't find the session files.

= Models are kept in $XDG_CACHE_HOME/hokku.
@ (XDG_CACHE_HOME|$XDG_CACHE_HOME) ; the (cache|model) (directory|folder)
+ (find|see|locate|open|look into) the (folder|directory|place|path|location|cache folder|cache directory) (of|for|with) (the|my|) (models|downloaded models|model files|downloads)
+ (find|locate) (the|my) (downloaded model|downloaded models|downloads|downloaded file|model I downloaded)
+ (delete|remove|clean up|back up|move) (old|downloaded|cached|some) (models|model files)
+ (free|get back) disk space (used by models|taken by models|from models)
+ know where (models|downloads|the models|downloaded models) (are kept|are stored|go|are saved)
+ (clear|empty|clean|delete) the (model cache|cache of models|download cache|cache folder|cache directory)
? where (are|on disk are) (the|my|downloaded|all the|the downloaded) (models|model files|gguf files|downloads) (kept|stored|saved|put|on disk|written)?
? where does (hokku|it|the program|-hf|the app) (save|keep|store|put|write|download) (the |its |my |downloaded |)(models|model files|model|downloads)?
? where is the (cache|model cache|cache folder|cache directory|download folder|models folder)?
? in (which|what) (folder|directory|place|location) are (the|my|downloaded) (models|model files|downloads)? ; model cache ; cache directory
? cache folder ; model folder ; models directory ; path of the models ; location of the models
? where on (my|the) (disk|computer|machine) are (the|my|downloaded) models?
? where do (downloads|downloaded models|models|the downloaded files) (go|end up|land|live|get stored)?
? I (downloaded|fetched) a model, where is (it|the file)? ; what is the path (of|to) (the|my|downloaded) models? ; My disk is full of models.
? which (directory|folder) (holds|has|contains) the models? ; where did the (download|downloaded model|downloaded file) go?
? I can't find the model that I downloaded.

= The config file is $XDG_CONFIG_HOME/hokku/config: long option names, one per line.
@ (XDG_CONFIG_HOME|$XDG_CONFIG_HOME) ; (the|a) (config|configuration) file
+ (set|keep|change|store|save|write down|fix|make|have) (defaults|default options|options for good|my defaults|default settings|my options|options permanently|settings for good|my settings for next time|standard options|permanent options|permanent settings)
+ (use|write|create|edit|make|open|find|have|change) (a|the|my) (config|configuration|config file|configuration file|settings file)
+ configure (hokku|the program|things|it|this) ; avoid typing the same options (every time|again|always)
+ (make|have) (an option|options|a setting|my settings) (permanent|the default|stay|last|stick)
+ (always|) use the same options (every time|each time|without typing them)
+ (customise|customize|personalise|set up) hokku ; (put|keep|write|store) (options|my options|settings) (in|into) a file
+ (remember|keep) (options|my options|settings) (for the next start|between runs|for next time)
? where is the (config|configuration|settings file|config file|configuration file)?
? is there a (config|configuration|settings|preferences|rc|dot) file?
? what (goes|do I write|can I write|is written|stands) (into|in) the (config|configuration) file?
? can (options|settings|defaults) be (stored|kept|saved|made permanent|set for good|written in a file)?
? config file ; configuration ; configuration file ; config ; settings file ; permanent settings ; default options ; rc file ; dotfile
? how do I (write|format|fill) the config file? ; what (does|should) the config file look like?
? I (always|) (type|give|use) the same options (every time|each time|again and again|always).
? I don't want to (type|give|write) (the options|all these options|the same options) (every time|each time|again and again).
? can I (configure|customise|customize) (hokku|it|this)? ; (where|how) (can|do) I set (defaults|default options|options for good|my defaults)?
? does hokku (have|read|use) a (config|configuration|settings) file? ; how is hokku configured? ; how can hokku be configured?
? in which file are (the|my) default options?

= Tab completes commands, settings, file and session names.
@ Tab ; the (Tab key|tab key) ; (the tab|tab|) completion
+ (complete|finish|fill in|auto-complete|autocomplete) (a command|names|a name|commands|file names|a file name|session names|a session name|settings|the name of a file|a word|a half-typed command|a path|a filename)
+ (type|enter) (less|faster|commands faster|only the start of a command|names faster|fewer letters|long names quickly)
+ (use|get|have) (completion|tab completion|auto-completion|autocompletion|autocomplete)
+ (avoid|save) (typing|typing names in full|typing whole names|typing long file names|keystrokes)
+ (have|get) (a command|a name|file names|session names|names) completed (for me|)
+ (let|make) hokku (complete|finish) (what I type|a name|the name|a command)
? is there (tab |auto-|command |name |)completion? ; is there autocomplete?
? (which|what) key completes (commands|names|a command|file names|a name|session names)?
? can (hokku|it|you|I) (complete|autocomplete) (commands|names|file names|a command|session names|what I type)? ; completion ; tab completion
? autocomplete ; autocompletion ; tab ; auto-completion
? I don't want to type (whole|long|full) (names|commands|file names). ; what can Tab complete? ; does Tab (work|complete|do anything) (here|) ?
? does (hokku|it) (complete|have autocomplete|autocomplete|have completion|know tab completion|complete names)?
? are (names|commands|file names) completed? ; Typing (long names|file names|commands) is (tedious|tiring|slow).
? what happens (when|if) I press (Tab|tab|the tab key)? ; how is a (command|name|file name) completed?
? how can a (command|name|file name) be completed?
? must I type (names|commands) in full?

= The tools are inspect, tokenize, render, score, perplexity, bench, replay and pull.
@ (the|hokku's) (tools|subcommands)
+ (see|list|show|know|find|name|get|learn) (the|all the|all|a list of the|hokku's|the other) (tools|subcommands|tools of hokku|tools that come with hokku)
+ (find out|know|see|learn) (which|what) (tools|subcommands) (there are|exist|hokku has|I can use|come with hokku)
+ (use|run|call) (a tool|the tools|one of the tools|a subcommand|the other tools) ; use hokku for more than (chat|chatting) ; (find|choose) a tool
? (what|which) (tools|subcommands) (are there|exist|does hokku have|come with hokku|can I use|are included|does it have|are in hokku|has hokku got|do you have|are available|belong to hokku)?
? tools ; list of tools ; subcommands ; list the tools ; name the tools ; all tools ; names of the tools ; the tools
? how many tools (are there|does hokku have|come with hokku)? ; are there (any tools|tools|other tools|subcommands|more tools)?
? does hokku (have|come with|bring|include|offer) (tools|other tools|any tools|subcommands)?
? what (else|more) can hokku do (besides chat|than chat|apart from chatting|)? ; what are (the|hokku's) (tools|subcommands)? ; tell me the tools
? what are the tools (called|named|of hokku)? ; is there (more|anything) than (the |)chat?
? what other (tools|programs) (are in|come with|belong to) hokku? ; can you list the tools? ; can hokku do (more|other things) than chat?
? I need a tool (for models|to work with models|), which are there?

= hokku inspect FILE shows what is in a model file.
@ (hokku inspect|inspect) ; (hokku inspect|inspect) ; (hokku |)inspect (FILE|model.gguf)
+ (look into|inspect|examine|open up|analyse|analyze|peek into|study|look inside|dissect|explore|check) a (model|gguf|model file|gguf file)
+ (see|list|show|print|read|view|display|dump|get) (the metadata|what is in a model|the tensors|what a model file contains|the contents of a model file|what is inside a gguf file|the header of a gguf file|the tensor list|the metadata of a model|the tensors of a model|the names of the tensors)
+ (find out|know|see|learn) (what a model file contains|what is in a (model|gguf) file|how a model is quantised|how many layers a model has|how many parameters a model has|what architecture a model has|which tensors a model has|what kind of model a file holds)
+ (get|see) (information|details) about a (model|gguf) file ; check what a (model|gguf) file (contains|holds)
? (which|what) (tool|command) (shows|prints|lists|reads) (what is in a model file|the metadata|the tensors|the contents of a model|the metadata of a model)?
? can I (look into|see inside|inspect|examine|open up) a (model|gguf|model file|gguf file)?
? can hokku (show|list|print|tell me|read) (the metadata|the tensors|what is in a model file|what is in a gguf file)?
? metadata ; tensors ; model metadata ; list of tensors ; look into a model ; tensor names ; gguf metadata ; inspect a model
? contents of a model file ; what (tensors|metadata|layers) (does a model have|are in a model|are in a model file|has a model file)?
? is there a tool (for looking into|that looks into|that shows) (model files|a model file|gguf files)?
? I have a (model file|gguf file) and want to know what is in it. ; What is inside (this|a|my) (model|model file) and how do I see it?
? how can (the metadata|the tensors|a model file) be (seen|listed|shown|inspected)?
? how do I see the (quantisation|architecture|layers|metadata) of a model file? ; what do I run to see the (tensors|metadata)?

= hokku tokenize -m MODEL prints the token ids of a text.
@ (hokku tokenize|tokenize) ; (hokku tokenize|tokenize) ; (hokku |)tokenize -m MODEL ; (the tokenizer|the tokeniser) tool
+ (tokenize|tokenise|turn into tokens|split into tokens|convert to tokens|break into tokens|cut into tokens|encode) (a|some|my|any|this) (text|file|sentence|string)
+ (see|get|count|print|list|find|show|know) the (tokens|token ids|token numbers|number of tokens|ids of the tokens) (of a text|of a file|of a sentence|of some text|in a text|of a word|in a file|of my text)
+ (see|find out|know|learn|show) how (a text|text|a sentence|a word|a file) (is split|is tokenized|is tokenised|is cut|is split into tokens|is turned into tokens|becomes tokens)
+ (count|find out|know) how many tokens a (text|file|sentence|word) (has|is|takes|makes) ; (run|use|try|test) the (tokenizer|tokeniser)
+ convert (text|a text|words) to (token ids|ids|token numbers|tokens)
? (which|what) (tool|command) (tokenizes|tokenises|prints the token ids of|splits|counts the tokens of) a (text|file)?
? how many tokens (has|are in) (a text|a file|my text|this file|a sentence)? ; how many tokens does (a text|a file|my text|this file|a sentence) have?
? can (hokku|I|it|you) (tokenize|tokenise|count the tokens of|split into tokens) a (text|file|sentence)?
? tokenizer ; tokeniser ; tokenise ; token ids of a text ; tokens of a text ; tokenise a file ; count tokens in a file ; text to tokens
? is there a (tokenizer|tokeniser|tool for tokens|token counter|tool that tokenizes)?
? how is a text (tokenized|split into tokens)? ; how can a text (be tokenized|be turned into tokens)?
? I (want|need) the (token ids|tokens) of (a text|my text|a file).
? what are the token ids of (a|my|this) (text|sentence|file)? ; how do I see which tokens a text (has|is made of)?
? where do I get token ids (of a text|from a text)? ; I'd like to know how many tokens my (text|file) has.
? can a text be (tokenized|tokenised|turned into token ids)?

= hokku render prints the prompt that the chat template makes.
@ (hokku render|render) ; (hokku render|render) ; (hokku |)render (CONTEXT.json|-m MODEL)
+ (see|test|print|get|show|check|view|inspect|display) (the rendered prompt|what the template makes|what the chat template makes|the prompt that the template makes|the final prompt|the exact prompt|the prompt as the model sees it|the output of the template|the result of the template|what the model really gets|the filled template)
+ render (a|the) (chat template|template|prompt|conversation)
+ (test|debug|try out|verify) (a|the|my|a jinja) (chat template|template)
+ (see|know|check|find out) (how the template (works|looks|formats the chat|turns messages into a prompt)|what prompt comes out of the template|what (text|prompt) the chat template (makes|produces|gives))
+ (turn|convert|make) (messages|a list of messages) into a prompt
+ (expand|apply|fill in|run|evaluate) (the|a|my) (chat |)template (without running the model|by itself|)
? (which|what) (tool|command) (prints|shows|renders|tests) (the rendered prompt|the prompt that the template makes|a chat template|the chat template's prompt)?
? can I (see|print|check) (the rendered prompt|what the template makes|the template's output)?
? can I (test|debug|render) (a chat template|my template)?
? rendered prompt ; render a template ; template test ; final prompt ; template output ; test a chat template
? what does the (chat |)template (make|produce|print|turn messages into)? ; what (prompt|text) does the model really (get|see)?
? is there a tool (for|that tests|that renders|to render) (chat templates|the template|templates)?
? how does the rendered prompt look? ; what does the rendered prompt look like?
? how is a (chat |)template (tested|rendered|debugged)? ; how can a (chat |)template (be tested|be rendered)?
? I want to see the (exact|rendered|final|real) prompt.
? My template is (wrong|broken|new), how do I test it? ; what comes out of the chat template?

= hokku bench -m MODEL measures the speed.
@ (hokku bench|bench) ; (hokku bench|bench) ; (hokku |)bench -m MODEL ; (a|the) benchmark
+ (benchmark|bench|time|speed test) (a model|hokku|my machine|my computer|my GPU|my card|the model|this machine|a gguf file)
+ (run|do|make|start|perform) (a|the|some) (benchmark|benchmarks|speed test|performance test|speed measurement)
+ (measure|test|determine|find out) (the|) (speed|performance|throughput) of (a model|my machine|my computer|a model file|my GPU|my graphics card|my card|this machine|hokku on my machine)
+ (compare|measure) the speed of (two models|several models|models|different models|two machines)
+ (find out|see|know|test|measure) how fast (a model|my machine|my GPU|my computer|my card|a model file|a model runs|hokku runs here) (is|)
+ (measure|get|know) (the gigabytes per second|the memory bandwidth used|the percent of the peak) ; (test|measure) the (hardware|performance)
? (which|what) (tool|command) (measures|tests|benchmarks) (the speed|the speed of a model|the performance|a model)?
? is there a (benchmark|speed test|bench tool|performance test|benchmark tool)?
? can (hokku|I|it) (benchmark|bench|measure the speed of|test the speed of) (a model|my machine|my GPU|models|my card)?
? benchmark ; benchmarks ; benchmarking ; speed test ; performance test ; measure performance ; benchmark a model
? how fast is (my machine|my computer|my GPU|my card|a model|my graphics card|this model file)?
? how is (the speed of a model|a model|performance) (measured|benchmarked)?
? how can (the speed of a model|a model|performance) (be measured|be benchmarked)?
? I want (a benchmark|to compare models|to benchmark my GPU|a speed test). ; which of my models is (faster|the fastest)?
? does hokku (have|include|come with) a (benchmark|bench|speed test)? ; what (performance|throughput) does my (GPU|card|machine) (reach|give)?
? is it possible to benchmark? ; I bought a new card, how fast is it with hokku? ; what tool do I use for (speed|performance)?

= hokku perplexity -m MODEL -f FILE measures how well a model predicts a text.
@ (hokku perplexity|perplexity) ; (hokku perplexity|perplexity) ; (hokku |)perplexity -m MODEL -f FILE
+ (measure|compute|calculate|get|find|determine|evaluate|know|work out) (the|a model's|) perplexity (of a model|of a text|on a text|)
+ (measure|see|test|know|check|find out) how (well|good|badly) (a model|the model|my model) (predicts|knows|guesses) a text
+ (measure|test|judge|rate|evaluate|assess|check) the (quality of a model|quality of my model|model's quality|model's predictions|quality of a quantisation)
+ (compare|rank) (the quality of |)(two models|models|quantisations|quantizations|two quantisations) (by quality|by perplexity|on a text)
+ (see|know|find out) (how much a quantisation loses|how much worse a quantised model is|how good a model is|which model predicts better)
+ evaluate a model (on a text|)
? what is (the |)perplexity (for|)?
? (which|what) (tool|command) (measures|computes|calculates) (the |)(perplexity|quality of a model|how well a model predicts a text)?
? how good is a model (at predicting|at predicting a text|on a text|)? ; how (well|good) does (a|my|the) model predict (a text|text|my text)?
? model quality
? quality of a model ; compute perplexity ; measure perplexity ; model evaluation
? can (hokku|I|it) (measure|compute|calculate) (the |)(perplexity|quality of a model)?
? is there a (perplexity tool|quality test|tool for perplexity|tool for model quality|quality measure)?
? which of two models is (better|the better one)?
? how is (perplexity|the quality of a model|the perplexity) (measured|computed)?
? how can (perplexity|the quality of a model|the perplexity) (be measured|be computed)?
? I want to (know|measure) (the perplexity|how good my model is|how well my model predicts a text).
? does quantisation make the model worse, and how do I measure that? ; where do I get the perplexity?

= hokku score -m MODEL FILE prints the log-probability of every token.
@ (hokku score|score) ; (hokku score|score) ; (hokku |)score -m MODEL FILE
+ score (a|the|my|some) (text|file)
+ (get|print|see|compute|list|show|find|calculate) the (log-probability|logprob|log probability) of (every|each) (token of a text|token of a file|token|token in a file|word of a text|token in my text)
+ (see|find out|know|print) how likely (every|each) token of a (text|file) is
+ (rate|judge|measure) (each|every) token of a (text|file)
+ (get|print|see) the (scores|token scores|log-probabilities of all tokens) (of a text|of a file|in a file)
? (which|what) (tool|command) (scores a text|prints the log-probability of every token|scores a file|gives the log-probability of each token)?
? can (hokku|I|it) score a (text|file)? ; how is a (text|file) scored? ; how can a (text|file) be scored? ; score a text ; score a file ; token scores
? scoring
? text score ; log-probability of every token ; log-probability of each token
? how likely is (every|each) token (of|in) (a|my) (text|file)? ; is there a (tool for scoring|scoring tool|tool that scores a text)?
? I (want|need) the log-probability of (every|each) token (of a text|in a file|of my file|). ; how do I get scores for a (text|file)?
? I have a (text|file) and want it scored. ; which tool gives log-probabilities for a (text|file)?

= Exit code 0 means done.
@ <code> (0|zero)
? (which|what) <code1> (means|stands for|do I get for) (done|success|no error|everything OK)?
? (which|what) <code1> (means|says|tells me) (that all went well|that everything is fine|all is well|that it worked|that hokku is done)?
? what is the exit code (of success|when all went well|on success)?
? what does hokku return (when it succeeds|when everything worked|when all went well|on success)?
? it (ended with|returned|gave|exited with) 0, is that good?
? what does hokku (return|exit with) (on success|if all went well|when it is done)?
? is (exit code|exit status|code|status) 0 (good|fine|success|an error|bad|all right|a failure)? ; success code ; exit code of success
? (how do I know|how does a script know) that (it worked|all went well|hokku succeeded)?

= Exit code 1 means a failure while running.
@ <code> (1|one)
? (which|what) <code1> (means|stands for|do I get for) (a failure while running|a run-time failure|a runtime error|a failure at run time|a crash while running|an error while running)?
? (which|what) <code1> (means|says|tells me) (that something failed while running|that the run failed)?
? what is the exit code (of|for) (a failure|a failure while running|a runtime error|something that fails while running)?
? hokku (ended with|returned|gave|exited with|failed with) 1, why? ; is (exit code|exit status|code|status) 1 (a failure|an error|bad|serious)?
? what (does hokku return|exit code comes) when (something fails while running|the run fails|it fails while running)?
? why is the exit (code|status) 1? ; runtime failure code ; it failed while running, which exit code is that?

= Exit code 2 means wrong usage.
@ <code> (2|two)
? (which|what) <code1> (means|stands for|do I get for) (wrong usage|a wrong option|bad usage|a usage error|bad options|incorrect usage|an unknown option|wrong options)?
? (which|what) <code1> (means|says|tells me) that I used it wrongly?
? what is the exit code (of|for) (wrong usage|a usage error|a wrong option|bad options)?
? hokku (ended with|returned|gave|exited with|failed with) 2, why?
? is (exit code|exit status|code|status) 2 (a usage error|wrong usage|an error|bad)?
? what (does hokku return|exit code comes) when (I use it wrongly|the usage is wrong|I give a wrong option|an option is wrong|I misuse it)?
? why is the exit (code|status) 2? ; usage error code ; I (gave|typed) a wrong option, which exit code is that?

= Exit code 3 means that the model cannot be loaded.
@ <code> (3|three)
? (which|what) <code1> (means|stands for|do I get for) (a broken model|a model that cannot be loaded|a bad model file|a damaged model file|an unreadable model|a load failure)?
? (which|what) <code1> (means|says|tells me) (that the model cannot be loaded|that loading failed|that the model file is broken)?
? what is the exit code (of|for) (a broken model|a model that cannot be loaded|a failed load|a broken model file)?
? hokku (ended with|returned|gave|exited with|failed with) 3, why?
? is (exit code|exit status|code|status) 3 (about the model|a loading error|an error|bad)?
? what (does hokku return|exit code comes) when (the model cannot be loaded|loading fails|the model file is broken|the model is damaged|the model can't be read)?
? why is the exit (code|status) 3? ; load failure code ; my model file is broken, which exit code is that?

= Exit code 4 means not enough memory.
@ <code> (4|four)
? (which|what) <code1> (means|stands for|do I get for) (not enough memory|too little memory|out of memory|lack of memory|no memory|insufficient memory|too little RAM)?
? (which|what) <code1> (means|says|tells me) (that memory is short|that the memory ran out|that there is not enough memory)?
? what is the exit code (of|for) (too little memory|not enough memory|out of memory|lack of memory)?
? hokku (ended with|returned|gave|exited with|failed with) 4, why?
? is (exit code|exit status|code|status) 4 (about memory|a memory error|an error|bad)?
? what (does hokku return|exit code comes) when (there is not enough memory|the memory is too small|memory runs out|it runs out of memory)?
? why is the exit (code|status) 4? ; out of memory code ; the memory was too small, which exit code is that?

= Exit code 5 means that the prompt does not fit the context.
@ <code> (5|five)
? (which|what) <code1> (means|stands for|do I get for) (a prompt that does not fit|a prompt that is too long|a too long prompt|a prompt longer than the context)?
? (which|what) <code1> (means|says|tells me) (that the prompt does not fit|that the prompt is too long|that the prompt does not fit the context)?
? what is the exit code (of|for) (a prompt that is too long|a too long prompt|a prompt that does not fit)?
? hokku (ended with|returned|gave|exited with|failed with) 5, why?
? is (exit code|exit status|code|status) 5 (about the prompt|about the context|an error|bad)?
? what (does hokku return|exit code comes) when (the prompt is too long|the prompt does not fit|my prompt is longer than the context|the prompt is too big)?
? why is the exit (code|status) 5? ; prompt too long code ; my prompt is too long for the context, which exit code is that?

= A hokku is the opening verse with which poets begin writing in turns.
@ the (word|name) hokku
+ understand (the name|the word hokku|the name hokku|what the name means)
+ (know|learn|find out) (where the name comes from|what the name means|why it is called hokku|what the word hokku means|the meaning of the name)
? what does (the word|the name|the word or name) (hokku|"hokku") (mean|stand for)?
? where does (the name|the name hokku|hokku's name|the word hokku|this name|your name) come from?
? why is (it|this|the program|this program|this thing|the tool) (called|named) (hokku|that|so|like that)? ; what is (a|the meaning of) hokku?
? why (the|this|that) (name|strange name|word) (hokku|)?
? what (is|does) the (name|word) (hokku|) (mean|about|)? ; what's (a hokku|the meaning of hokku|in the name|behind the name|the story of the name) ?
? is a hokku a (poem|haiku|verse|word|Japanese word)? ; is a hokku (the same as|something like|different from) a haiku?
? (what|which) (language|origin) (is|has) the name? ; meaning of the name ; origin of the name ; name origin
? what kind of (word|verse|poem|name) is (a |)hokku? ; what did poets call a hokku? ; explain the (name|word) (hokku|).
? who chose the name and why? ; hokku is a (strange|funny|nice) (name|word). ; how did (hokku|the program) get its name?
? tell me (about the name|what a hokku is|where the name comes from). ; what were hokku (in poetry|for poets)? ; what is a hokku in poetry?
? the word hokku: what (does it mean|is it)? ; I don't (understand|know) the (name|word hokku|name hokku). ; is hokku a Japanese word?
? what does a hokku (have to do with poems|begin|open)? ; with which verse do poets begin writing in turns?
? what is the difference between a hokku and a haiku? ; (what|which) opening verse is meant by the name?

= hokku is a terminal program that loads a GGUF model and answers you.
+ understand what (this|this program|hokku|this tool) is
+ (know|learn|find out) (what hokku is|what hokku does|what this program does|what this is|more about hokku|what hokku is for|what this program is for)
? what is (hokku|this program called hokku|this hokku program|this hokku thing)?
? what does (hokku|this program|the program|this tool|this app|this thing|the programme) do?
? what (kind of|sort of|type of|) (program|tool|software|thing|app|application|programme) is (this|hokku|that)?
? what is this (program|thing|tool|app|place|window|software|programme|)?
? tell me (about|something about|more about) (hokku|this program|the program|this tool)
? explain (hokku|this program|what hokku is|what hokku does|this thing to me) ; what am I (talking to|using|running|looking at)?
? describe (hokku|this program|the program) ; what is (hokku|this program|this tool|this) (for|good for|about|made for|used for)?
? what can (hokku|this program) do (for me|)?
? I have never (heard of|used|seen) (hokku|this|this program), what is it? ; who or what is hokku?
? what's (hokku|this|this thing|this program|hokku for) ? ; where am I? ; what did I (start|open|install|run) (here|)?
? what have I (started|opened|installed)? ; is (hokku|this) (a program|a chat program|a chatbot|a terminal program|an app|a website|a game)?
? why would I use (hokku|this program)?
? in one sentence, what is hokku? ; introduce hokku ; about hokku ; about this program ; hokku?
? (what's|what is) the (purpose|point|use|idea|job) of (hokku|this program|this tool|this)? ; how does hokku work?
? is hokku (something like|like|a kind of) (a chat program|a chatbot|a terminal chat)? ; I found hokku on (my computer|this machine), what is it?
? does hokku run in (the|a) terminal? ; what software is this? ; (give me|I need) a (short |)(description|introduction|explanation|summary) of hokku
? what's hokku all about? ; a friend told me about hokku, what is it?

= A GGUF file holds a language model: its weights, its tokenizer and its chat template.
@ (a|) (GGUF|gguf) (file|) ; (the|) (GGUF|gguf) (format|file format)
+ understand (gguf|GGUF|gguf files|the gguf format|the file format)
+ (know|learn) (what gguf is|what a gguf file is|what GGUF means|what is stored in a gguf file)
? what is (a|an|) (gguf|GGUF) (file|format|model|)? ; what (is|stands|is stored|sits|lies|do you find) in a (gguf|GGUF) (file|)?
? what does (gguf|GGUF|a gguf file) (mean|contain|hold|store|stand for)?
? (which|what) (file |model |)(format|formats) (does hokku use|is used|are models in|does hokku read|does hokku need|do models have|are supported|does hokku understand|do you read)?
? gguf ; GGUF format ; gguf file ; model format ; file format ; model file format ; explain (gguf|GGUF|gguf files|the gguf format)
? what (kind of|sort of|type of) (file|files|format) (is a gguf|is gguf|is a model|does hokku read|does hokku load|do I need)?
? what are (gguf|GGUF) (files|models) (for|)?
? in (which|what) (format|file format) (are models|must a model be|should the model be|is a model stored|are models stored)?
? what does a (model file|model) (contain|hold|consist of|have inside)? ; is the tokenizer (in|part of|inside) the (model file|gguf file)?
? why (gguf|GGUF|gguf files)? ; what does the ending gguf mean? ; what is a file (ending in|with the ending) gguf? ; what's in a model file?
? I (have|got|found|downloaded) a file (that ends in|ending in|with the ending) gguf, what is it?
? does a (gguf|GGUF) (file |)(hold|contain|include) (the weights|a tokenizer|the chat template|the tokenizer|a model)?
? where are the weights (of a model|) (stored|kept|)? ; what is a model file? ; which model files (work|can hokku read|does hokku read)?

= The KV cache keeps what was read, so that each turn reads only its new tokens.
@ (the|a) (KV cache|kv cache|key-value cache) ; the prompt cache
+ understand the (KV cache|kv cache|cache in memory)
+ (know|learn) (what the KV cache is|how the KV cache works|why the second turn is faster|what the KV cache does)
+ avoid reading (everything|the whole conversation|old turns|the same text) again (each turn|every turn|)
? what is the (KV cache|kv cache|key value cache|key-value cache) (for|good for|)? ; what is (the|a) cache for?
? (does|must|will|do you need to) every turn (read|reread|read again) (everything|the whole conversation|the whole chat|all) (again|)?
? why is the (second|next|later|third) (turn|answer|question) (so |)(fast|quick|faster|quicker)?
? kv cache ; key value cache ; prompt cache ; prompt caching ; cached tokens ; what does the (KV cache|kv cache|cache) (do|keep|hold|store|contain)?
? why is there a (KV cache|kv cache)? ; how does the (KV |kv |)cache work?
? do you (read|process) (the whole conversation|everything|all|the whole chat|old turns|the old tokens) (again|each time|every time|each turn|every turn|again and again)?
? is (the conversation|everything|the whole chat|all text|the old text|what was said) (read again|read anew|reread|processed again) (at every turn|each time|every time|for each turn)?
? how do you avoid reading everything again? ; what (is|are) (cached|the cached tokens|kept between turns)?
? why is only the first (turn|answer) slow? ; why was the (second|next) answer (faster|quicker|so quick)?
? does hokku (cache|remember|keep|reuse) (what it read|old tokens|the tokens it read|the prompt|earlier tokens|what was read)?
? which tokens are read (at each turn|each turn|in the second turn|again)? ; why does a long chat stay fast?
? are old turns (read again|computed again|reread)? ; what speeds up the second turn? ; what does KV (mean|stand for)?

= A haiku is a poem of three lines with five, seven and five syllables.
@ (a|the) haiku ; haiku
+ understand (haiku|what a haiku is|the form of a haiku|the rules of haiku)
+ (know|learn) (what a haiku is|the rules of a haiku|how a haiku is built|how long a haiku is|how many syllables a haiku has|how a haiku works)
? what is a haiku? ; what's a haiku? ; explain (what a haiku is|haiku|haikus|the haiku|the form of a haiku)
? how many (syllables|lines|verses) (does a haiku have|has a haiku|are in a haiku|make a haiku|must a haiku have|belong in a haiku)?
? what makes a (haiku|poem a haiku)? ; what are (haiku|haikus)? ; how (long|short) is a haiku?
? haiku rules ; form of a haiku ; syllables of a haiku ; syllables in a haiku ; lines of a haiku ; haiku meaning ; haiku form ; haiku definition
? what (kind of|sort of|type of) (poem|verse|poetry|thing|text) is a haiku?
? what (are|is) the (rules|rule|form|structure|shape|pattern|metre|scheme|syllables|lines) (of|for|in) a haiku?
? how (is|are) a haiku (built|made|written|structured|formed|put together)? ; is a haiku a (poem|short poem|verse|song|story)?
? does a haiku (rhyme|have three lines|have five lines|have rules|have a form)? ; what does (the word |)haiku mean? ; what does a haiku look like?
? define (haiku|a haiku) ; describe a haiku ; how many syllables (are in|has) (the first line|each line) (of a haiku|)?
? I don't know what a haiku is. ; how do I (recognise|recognize|know|count|tell) a haiku?
? why (five, seven and five|three lines|5-7-5) (in a haiku|)? ; what is 5-7-5? ; what does 5-7-5 mean? ; why do haiku have three lines?
? when is a poem a haiku? ; I've heard of haiku, what are they? ; how does a haiku work?

= A token is a piece of text, often a word or a part of one.
@ (a|one) token ; tokens
+ understand (tokens|what a token is|what tokens are) ; (know|learn) what (a token is|tokens are|the word token means)
? what is a token? ; what's a token? ; what are (tokens|these tokens|the tokens)?
? explain (tokens|a token|what a token is|what tokens are|the word token) ; what does (token|the word token|tokens) mean?
? what do you mean by (token|tokens|a token)? ; what is meant by (token|tokens|a token)? ; what (kind of|sort of) thing is a token? ; token ; tokens
? token meaning
? is a token (a word|the same as a word|a letter|a syllable|a piece of text|a number)?
? are tokens (words|letters|the same as words|pieces of words|syllables)? ; how (long|big|large) is (a|one) token?
? how many (letters|words|characters) (has a token|are in a token|is a token|make a token)? ; define (token|a token|tokens) ; describe a token
? token definition
? I don't (know|understand) what (a token is|tokens are). ; I (keep reading|keep hearing|hear|read) about tokens, what are they?
? everyone talks about tokens, what are they? ; in what are texts split? ; into what pieces is text (split|cut) (for the model|)?
? why (tokens|do you count in tokens|not words but tokens|tokens and not words)? ; what is one token of text?
? does a (word|sentence) have (one|several|many) tokens? ; is every word (one|a) token?
? what is the difference between a (token|word) and a (word|token)? ; what is the unit of text for the model?

= hokku is free software under the MIT licence.
@ the (MIT |)(licence|license)
+ (read|know|see|find|learn|find out) (the (licence|license)|which (licence|license) hokku has|the (licence|license) of hokku|under which (licence|license) hokku is)
+ (use|copy|share|change|sell|redistribute|give away|modify) (hokku|the program|the source|the code of hokku|hokku's source) (legally|freely|for free|at work|in my company|with others)
? (what|which) (licence|license) (does hokku have|has hokku|is it|is hokku under|does it use|applies|covers hokku|is hokku released under|is used)?
? is (hokku|it|this|this program|the program) (free|open source|free software|gratis|proprietary|commercial|free of charge|freeware|open-source)?
? what is the (licence|license) (of hokku|of this program|)?
? may I (use|copy|share|change|modify|sell|distribute) hokku (for free|at work|commercially|in my company|in my product|for business|)? ; licence
? license ; MIT ; MIT licence ; MIT license ; open source ; free software ; price ; cost of hokku
? does (hokku|it|this program|this) cost (anything|money|something)? ; how much does (hokku|it|this) cost? ; what does hokku cost?
? can I (use|copy|share|change|sell|modify|give away) (hokku|it|the code|this program) (for free|at work|freely|commercially|in my company|)?
? (do|must) I (have to |)pay (for hokku|for it|for this|anything|to use hokku)?
? am I allowed to (use|copy|change|sell|share|modify) (hokku|it) (at work|for money|)? ; under (which|what) (licence|license) is (hokku|it|this)?
? who owns hokku?
? is the (code|source|source code) (open|free|public)? ; what are the (licence|license|legal) terms?
? are there legal (limits|restrictions) to using hokku? ; do I need to buy (hokku|a licence|a license)?
? is hokku under (MIT|the MIT licence|the GPL|a free licence)? ; can my company use hokku? ; is it free?
'''
