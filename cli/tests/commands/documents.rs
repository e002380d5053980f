use pipewright::data::{Corpus, Template};
use pipewright::tokenizer::Tokenizer;

use super::*;

/// A config for chats, with the small tokenizer.
const CHATS: &str = "\
[model]
vocab = 512
dim = 16
layers = 2
heads = 2
dropout = 0.1

[data]
kind = 'jsonl'
path = 'chats.jsonl'
tokenizer = 'TOKENIZER'
field = 'messages'
loss_on = 'answers'
cache = 'cache'
seq = 16

[pipeline]
micro_batches = 4
micro_batch_size = 2
gradient_groups = 2

[train]
name = 'chats'
steps = 6
validate_every = 3
print_every = 1

[checkpoint]
every = 2
";

/// A folder with that config and chats.
fn place() -> Place {
    let place = Place::new();
    place.write("chats.toml", CHATS.replace("TOKENIZER", TOKENIZER));
    let chat = |number: u32| {
        let question = format!("What comes after {number}?");
        serde_json::json!({ "messages": [
            { "role": "user", "content": question },
            { "role": "assistant", "content": (number + 1).to_string() },
        ]})
    };
    let lines: String = (0..40).map(|number| format!("{}\n", chat(number))).collect();
    place.write("chats.jsonl", lines);
    place
}

fn train(place: &Place, args: &[&str]) -> Run {
    let all = [&["train", "chats.toml", "--weights-hash"], args].concat();
    place.run(&all).done()
}

#[test]
fn a_resumed_training_on_chats_has_the_weights_of_one_that_was_not_stopped() {
    let place = place();
    let whole = train(&place, &["--run-dir", "runs/whole"]);
    train(&place, &["--run-dir", "runs/parts", "--steps", "3"]);
    // It is resumed on other ranks and without the tokens that were kept.
    fs::remove_dir_all(place.path("cache")).unwrap();
    let sets = ["--set", "pipeline.stages=1", "--set", "pipeline.replicas=2"];
    let parts = train(&place, &[&["--run-dir", "runs/parts", "--resume"], &sets[..]].concat());
    assert_eq!(parts.hash(), whole.hash());
}

#[test]
fn the_built_in_text_is_trained_on_as_tokens() {
    let place = place();
    let sets = ["data.kind=text", "data.path=builtin:shakespeare", "train.steps=2"].map(|set| ["--set", set]);
    let said = train(&place, sets.as_flattened()).stdout();
    let tokenizer = Tokenizer::read(TOKENIZER.as_ref()).unwrap();
    let count = Corpus::built_in_encoded(&tokenizer, None).unwrap().count();
    has(&said, &[&format!("`built-in text`: {count} tokens")]);
    assert!(!place.path("cache").exists(), "it needs no file");
}

#[test]
fn a_run_says_how_many_documents_and_sequences_it_has() {
    let place = place();
    let said = train(&place, &["--steps", "1"]).stdout();
    has(&said, &["`chats.jsonl`: 40 documents of"]);
    has(&said, &["the last 4 documents for validation"]);
    let sets = ["data.packing=false", "data.seq=20", "data.loss_on=all"].map(|set| ["--set", set]);
    let args = [&["--steps", "1", "--run-dir", "runs/each"], sets.as_flattened()].concat();
    has(
        &train(&place, &args).stdout(),
        &[
            "36 sequences for training; ",
            "; 0.0 % of the places of micro-batches are empty",
            "36 documents are longer than data.seq = 20: \
           their ends are not used",
        ],
    );
}

#[test]
fn documents_are_kept_apart_in_any_cut_and_after_a_stop() {
    let place = place();
    let sets = ["data.packing=apart", "data.seq=96", "data.loss_on=all"].map(|set| ["--set", set]);
    let sets = sets.as_flattened();
    let whole = train(&place, &[&["--run-dir", "runs/whole"], sets].concat());
    has(&whole.stdout(), &["sequences for training; ", " % of the places of micro-batches are empty"]);
    let parts = [&["--run-dir", "runs/parts"], sets].concat();
    train(&place, &[&parts[..], &["--steps", "3"]].concat());
    let others = ["--set", "pipeline.stages=1", "--set", "pipeline.replicas=2", "--resume"];
    assert_eq!(train(&place, &[&parts[..], &others].concat()).hash(), whole.hash());
    let loss = |run: &str| {
        let said = place.run(&["evaluate", run]).done().stdout();
        said.split("loss ").nth(1).unwrap_or_else(|| panic!("{said}")).split(' ').next().unwrap().to_owned()
    };
    assert_eq!(loss("runs/whole"), loss("runs/parts"));
    // Texts that are written beside do not see what an evaluation has left.
    let sampled = ["--set", "train.sample_every=1", "--set", "train.validation_micro_batches=1"];
    let sampled = train(&place, &[&["--run-dir", "runs/sampled"], sets, &sampled].concat());
    assert_eq!(sampled.hash(), whole.hash());
    let joined =
        train(&place, &["--set", "data.seq=96", "--set", "data.loss_on=all", "--run-dir", "runs/joined"]);
    assert_ne!(joined.hash(), whole.hash());
    // What a longer document becomes.
    let with = |how: &str| {
        let longer = format!("data.longer={how}");
        let run = format!("runs/{how}");
        let train = ["train", "chats.toml", "--steps", "1", "--run-dir", &run];
        place.run_with(&train, &["data.packing=apart", "data.seq=20", &longer])
    };
    has(&with("cut").done().stdout(), &["36 documents are longer than data.seq = 20: cut"]);
    has(&with("refuse").refused(), &["chats.jsonl`: document ", "data.longer = \"cut\" or \"leave-out\""]);
    let refused = |set: &str| place.run_with(&["train", "chats.toml"], &[set]).refused();
    let said =
        place.run_with(&["train", "chats.toml"], &["data.longer=refuse", "data.packing=joined"]).refused();
    has(&said, &["data.longer: only documents that are kept apart can be left out or refused"]);
    has(
        &refused("data.packing=tight"),
        &["data.packing", "\"joined\", \"single\", \"apart\", true or false"],
    );
}

#[test]
fn documents_that_cannot_be_used_are_refused_before_the_run_begins() {
    let place = place();
    let refused = |sets: &[&str]| place.run_with(&["train", "chats.toml"], sets).refused();
    let said = refused(&["data.field=text", "data.loss_on=all"]);
    has(&said, &["chats.jsonl` line 1 has no field \"text\" (data.field), only \"messages\""]);
    has(&refused(&["model.vocab=511"]), &["tokenizer.json` has 512 tokens, and model.vocab is 511"]);
    has(&refused(&["data.end_of_text=<end>"]), &["has no token `<end>`"]);
    let mut lines = place.text("chats.jsonl");
    let cut: usize = lines.split_inclusive('\n').take(17).map(str::len).sum();
    lines.replace_range(cut - 4..cut - 1, "");
    place.write("chats.jsonl", lines);
    has(&refused(&[]), &["chats.jsonl` line 17 is broken JSON"]);
    assert!(!place.path("runs/chats/checkpoints").exists());
    let left: Vec<_> = fs::read_dir(place.path("cache")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

/// A folder with the small tokenizer and a template of its own, which adds a message of the system.
fn with_template(place: &Place) {
    fs::create_dir(place.path("own")).unwrap();
    fs::copy(Path::new(TOKENIZER).join("tokenizer.json"), place.path("own/tokenizer.json")).unwrap();
    let template = "{% if messages[0].role != 'system' %}<|im_start|>system\nBe kind.<|im_end|>\n{% endif %}\
                    {% for one in messages %}\
                    <|im_start|>{{ one.role }}\n{{ one.content }}<|im_end|>\n{% endfor %}\
                    {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
    place.write("own/chat_template.jinja", template);
}

#[test]
fn a_chat_is_written_by_the_template_beside_the_tokenizer_in_training_and_in_sampling() {
    let place = place();
    with_template(&place);
    let sets = ["data.tokenizer=own", "data.seq=80", "data.packing=false"].map(|set| ["--set", set]);
    let own = train(&place, &[sets.as_flattened(), &["--run-dir", "runs/own"]].concat());
    assert_eq!(own.stderr(), "");
    // The same text, by ChatML, and with the message of the system in the data.
    let chats = place.text("chats.jsonl");
    let system = r#"{"messages":[{"role":"system","content":"Be kind."},"#;
    place.write("kind.jsonl", chats.replace(r#"{"messages":["#, system));
    let other = ["--set", "data.path=kind.jsonl", "--set", "data.template=chatml", "--run-dir", "runs/kind"];
    let kind = train(&place, &[sets.as_flattened(), &other].concat());
    assert_eq!(kind.hash(), own.hash());
    let said = "warning: data.template = \"chatml\" writes chats otherwise than the tokenizer's own \
                template, `own/chat_template.jinja`: leave data.template out to take that one\n";
    assert_eq!(kind.stderr(), said);

    let sample = |args: &[&str]| {
        let all = [&["sample", "runs/own", "--temperature", "0", "--tokens", "8"], args].concat();
        place.run(&all).done().stdout()
    };
    let prompt = |system: &str| {
        format!(
            "<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
        )
    };
    for (args, system) in [(&[][..], "Be kind."), (&["--system", "Be brief."], "Be brief.")] {
        let answer = sample(&[&["--chat", "--prompt", "Hi"], args].concat());
        let prompt = prompt(system);
        let text = sample(&["--prompt", &prompt]);
        let text = text.strip_prefix(&prompt).expect("it begins with the prompt");
        // An answer ends where the template ends one.
        let expected = text.split("<|im_end|>").next().unwrap().trim_end();
        assert_eq!(answer, format!("{expected}\n"));
    }
}

#[test]
fn a_tokenizer_without_a_template_is_exported_with_the_one_that_wrote_its_chats() {
    let place = place();
    train(&place, &[]);
    place.run(&["export", "runs/chats", "mine"]).done();
    let exported = place.text("mine/chat_template.jinja");
    assert_eq!(exported, Template::ChatMl.source());
    let generation = place.text("mine/generation_config.json");
    let generation: serde_json::Value = serde_json::from_str(&generation).unwrap();
    assert_eq!(generation["eos_token_id"], serde_json::json!([0, 2]));
}

#[test]
fn an_exported_model_from_scratch_has_the_tokenizer_of_its_run() {
    let place = place();
    with_template(&place);
    train(&place, &["--set", "data.tokenizer=own", "--set", "data.seq=80", "--run-dir", "runs/own"]);
    place.run(&["export", "runs/own", "mine"]).done();
    for name in ["tokenizer.json", "chat_template.jinja"] {
        let read = |folder| fs::read(place.path(folder).join(name)).unwrap();
        assert!(read("mine") == read("own"), "{name}");
    }
    let json = |name| -> serde_json::Value {
        serde_json::from_slice(&fs::read(place.path("mine").join(name)).unwrap()).unwrap()
    };
    assert_eq!(
        json("generation_config.json"),
        serde_json::json!({"eos_token_id": [0, 2]}),
        "the ends of a document and of an answer"
    );
    let about = serde_json::json!({
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>",
    });
    assert_eq!(json("tokenizer_config.json"), about);
    let write = |from| {
        let args = ["sample", from, "--chat", "--prompt", "Hi", "--tokens", "9"];
        place.run(&args).done().stdout()
    };
    assert_eq!(write("mine"), write("runs/own"));
    // Where the folder names ends, no other token is one.
    let greedy = |end: &str| {
        place.write("mine/generation_config.json", format!("{{\"eos_token_id\": {end}}}"));
        let args = ["sample", "mine", "--chat", "--prompt", "Hi", "--tokens", "2", "--temperature", "0"];
        place.run(&args).done().stdout()
    };
    let text = greedy("[511]");
    let first = Tokenizer::read(TOKENIZER.as_ref()).unwrap().encode(text.trim_end()).unwrap()[0];
    assert!(text.len() > 1, "{text}");
    assert_eq!(greedy(&first.to_string()), "\n");
    fs::remove_dir_all(place.path("own")).unwrap();
    let said = place.run(&["export", "runs/own", "other"]).done().stderr();
    has(&said, &["warning: the folder gets no tokenizer: ", "own"]);
}

/// The files of a folder of text, and of token files, are documents if the config says how they become
/// sequences.
#[test]
fn the_files_of_a_folder_of_text_are_kept_apart() {
    let place = Place::new();
    let config = CHATS
        .replace("tokenizer = 'TOKENIZER'\nfield = 'messages'\nloss_on = 'answers'\ncache = 'cache'\n", "");
    let config = config.replace("'jsonl'", "'text'").replace("'chats.jsonl'", "'texts'");
    place.write("text.toml", config.replace("seq = 16", "seq = 16\npacking = 'apart'\nvalidation = 2"));
    fs::create_dir(place.path("texts")).expect("a folder");
    for number in 0..12 {
        place.write(
            &format!("texts/{number:02}.txt"),
            format!("Text {number} of some length. ").repeat(1 + number % 3),
        );
    }
    let train = |args: &[&str]| place.run(&[&["train", "text.toml", "--weights-hash"], args].concat()).done();
    let whole = train(&["--run-dir", "runs/whole"]);
    has(
        &whole.stdout(),
        &["12 documents of", "the last 2 documents for validation", "places of micro-batches are empty"],
    );
    let cut = ["--run-dir", "runs/cut", "--set", "pipeline.stages=2", "--set", "pipeline.schedule=zb-h1"];
    assert_eq!(train(&cut).hash(), whole.hash());
    let joined = train(&["--run-dir", "runs/joined", "--set", "data.packing=joined"]);
    assert_ne!(joined.hash(), whole.hash());
}

/// A validation while a model is trained takes 128 sequences at most. An evaluation takes all that is set
/// aside, also what fills no micro-batch.
#[test]
fn an_evaluation_has_all_documents() {
    let place = place();
    let chats = place.text("chats.jsonl");
    place.write("many.jsonl", chats.repeat(8));
    let sets = ["data.path=many.jsonl", "data.packing=single", "data.validation=301", "data.seq=96"];
    let sets = sets.map(|set| ["--set", set]);
    train(&place, &[&["--run-dir", "runs/many", "--steps", "1"], sets.as_flattened()].concat());
    let targets = |sets: &[&str]| -> u64 {
        let all = [&["evaluate", "runs/many", "--format", "json"], sets].concat();
        let said: serde_json::Value = serde_json::from_str(&place.run(&all).done().stdout()).expect("JSON");
        said["targets"].as_f64().expect("a number") as u64
    };
    let one = |document: u64| {
        let kept = format!("data.validation={document}");
        targets(&["--set", &kept, "--set", "train.validation_micro_batches=1"])
    };
    // The last chat alone, then twice as many: each chat has as many targets as others of its length.
    let (last, two) = (one(1), one(2));
    assert!(last > 0 && two > last);
    let all = targets(&[]);
    let halves = [1, 75].map(|count| targets(&["--set", &format!("train.validation_micro_batches={count}")]));
    // 301 sequences are 150 micro-batches of two, and one that is not full.
    assert!(halves[0] < halves[1] && halves[1] < all);
    assert_eq!(targets(&["--set", "train.validation_micro_batches=151"]), all);
    assert_eq!(targets(&["--set", "train.validation_micro_batches=150"]) + last, all);
}
