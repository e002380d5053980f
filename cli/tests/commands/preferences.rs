//! Training on pairs of answers, through the commands.

use super::*;

const CONFIG: &str = "\
[model]
path = 'MODEL'

[data]
kind = 'jsonl'
path = 'pairs.jsonl'
tokenizer = 'TOKENIZER'
cache = 'cache'
seq = 64
validation = 4

[pipeline]
micro_batches = 4
micro_batch_size = 4
gradient_groups = 4

[optimizer]
learning_rate = 1e-3

[train]
name = 'small'
objective = 'dpo'
steps = 4
validate_every = 2
print_every = 1

[checkpoint]
every = 2
";

/// A folder with that config and 20 pairs.
fn place() -> Place {
    let place = Place::empty();
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/preferences/model");
    place.write("my.toml", CONFIG.replace("TOKENIZER", TOKENIZER).replace("MODEL", model));
    let pair = |number: u32| {
        let prompt = format!("What comes after {number}?");
        let (chosen, rejected) =
            (format!(" {}", number + 1), " I do not know.".repeat(1 + number as usize % 3));
        format!("{}\n", serde_json::json!({"prompt": prompt, "chosen": chosen, "rejected": rejected}))
    };
    place.write("pairs.jsonl", (0..20).map(pair).collect::<String>());
    place
}

fn train(place: &Place, args: &[&str]) -> Run {
    place.run(&[&["train", "my.toml", "--weights-hash"], args].concat()).done()
}

/// The files with references in a folder.
fn references(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|kind| kind == "reference")).collect()
}

#[test]
fn the_weights_are_the_same_for_any_layout() {
    let place = place();
    let run = |name: &str, sets: &[&str]| {
        let folder = format!("runs/{name}");
        let sets = set(sets);
        train(&place, &[&["--run-dir", &folder], &sets[..]].concat()).hash()
    };
    let one = run("one", &["pipeline.stages=1"]);
    for (name, sets) in [
        ("three", &["pipeline.stages=3"][..]),
        ("split", &["pipeline.schedule=zb-h1"]),
        ("chunks", &["pipeline.stages=4", "pipeline.schedule=interleaved-1f1b"]),
        ("replicas", &["pipeline.stages=1", "pipeline.replicas=4"]),
        ("both", &["pipeline.replicas=2", "optimizer.sharded=true"]),
        ("full", &["pipeline.recompute=full"]),
    ] {
        assert_eq!(run(name, sets), one, "{name}");
    }
    let adapters = ["lora.rank=2", "lora.targets=[\"*.attn.q\", \"*.mlp.down\"]"];
    let adapted = run("adapted", &[&["pipeline.stages=1"], &adapters[..]].concat());
    assert_ne!(adapted, one);
    assert_eq!(run("adapted-three", &[&["pipeline.stages=3"], &adapters[..]].concat()), adapted);
    let shards = run("groups", &["pipeline.stages=1", "pipeline.shard_groups=2"]);
    assert_eq!(run("shards", &["pipeline.shards=2"]), shards);
    let blocks = [&["model.base=q8"], &adapters[..]].concat();
    let frozen = run("blocks", &[&blocks[..], &["pipeline.stages=1"]].concat());
    assert_eq!(run("blocks-cut", &blocks), frozen);
}

/// Layers that need rows of one length, in a `stack`.
const STACK: &str = "\
[model]
kind = 'stack'
vocab = 512
stack = [
    { kind = 'embedding', vocab = 512, context = 64, dim = 8 },
    { kind = 'reshape', dims = [512] },
    { kind = 'linear', inputs = 512, outputs = 512 },
    { kind = 'reshape', dims = [64, 8] },
    { kind = 'linear', inputs = 8, outputs = 512 },
]
";

#[test]
fn layers_that_need_rows_of_one_length_have_them_in_the_reference_too() {
    let place = place();
    let config = place.text("my.toml");
    let rest = config.split_once("[data]").unwrap().1;
    place.write("my.toml", format!("{STACK}\n[data]{rest}"));
    has(&train(&place, &[]).stdout(), &["is the reference for 20 pairs", "done: 4 steps"]);
}

#[test]
fn a_reference_is_found_once_and_kept_for_the_runs_that_begin_alike() {
    const NOTE: &str = "note      the model before the training is the reference for 20 pairs";
    let place = place();
    let whole = train(&place, &[]);
    has(&whole.stdout(), &["20 pairs of answers", "the last 4 pairs for validation; 16 for training", NOTE]);
    let kept = references(&place.path("cache"));
    assert_eq!(kept.len(), 1, "one for training and validation");
    let losses =
        |run: &str| place.lines(run).iter().map(|line| line["loss"].as_f64().unwrap()).collect::<Vec<_>>();
    assert_eq!(losses("runs/small")[0], std::f64::consts::LN_2, "the model is the reference");

    let again = train(&place, &["--run-dir", "runs/again", "--set", "pipeline.stages=3"]);
    assert!(!again.stdout().contains(NOTE), "it is read");
    assert_eq!(again.hash(), whole.hash());

    // A run goes on with the same numbers, also if the file is damaged or gone.
    for damage in ["none", "damaged", "gone"] {
        let run = format!("runs/{damage}");
        train(&place, &["--run-dir", &run, "--steps", "2"]);
        match damage {
            "damaged" => {
                let mut bytes = fs::read(&kept[0]).unwrap();
                bytes[3] ^= 1;
                fs::write(&kept[0], bytes).unwrap();
            }
            "gone" => fs::remove_dir_all(place.path("cache")).unwrap(),
            _ => {}
        }
        let resumed = train(&place, &["--run-dir", &run, "--resume"]);
        assert_eq!(resumed.stdout().contains(NOTE), damage != "none", "{damage}");
        assert_eq!(resumed.hash(), whole.hash(), "{damage}");
        assert_eq!(references(&place.path("cache")), kept, "{damage}");
    }

    // The config that the run has kept is enough.
    train(&place, &["--run-dir", "runs/kept", "--steps", "2"]);
    let resumed = place.run(&["train", "--run-dir", "runs/kept", "--resume", "--weights-hash"]).done();
    assert!(!resumed.stdout().contains(NOTE), "it is read");
    assert_eq!(resumed.hash(), whole.hash());

    // Of another model before the training, a run that goes on says so.
    train(&place, &["--run-dir", "runs/other", "--steps", "2"]);
    let other = ["--run-dir", "runs/other", "--resume", "--set", "pipeline.dtype=bf16"];
    has(&train(&place, &other).stdout(), &["the reference of pairs (another model before the training)"]);
    let bf16 = references(&place.path("cache")).into_iter().find(|path| *path != kept[0]).unwrap();
    fs::remove_file(bf16).unwrap();

    // Without a place to keep it, a run goes on, and says so.
    let [kept] = &references(&place.path("cache"))[..] else { panic!("one") };
    fs::remove_file(kept).unwrap();
    fs::create_dir(kept).unwrap();
    let said = train(&place, &["--run-dir", "runs/unkept"]);
    has(
        &said.stdout(),
        &[NOTE, "the reference is not kept, so the next run evaluates all pairs again: cannot"],
    );
    assert_eq!(said.hash(), whole.hash());
    fs::remove_dir(kept).unwrap();
    train(&place, &["--run-dir", "runs/again-kept"]);

    // Other weights at the start, other pairs, and other numbers have references of their own.
    for sets in
        [&["lora.rank=2", "lora.targets=[\"*.attn.q\"]"][..], &["pipeline.dtype=bf16"], &["data.seq=32"]]
            .into_iter()
            .chain([&["pipeline.wires=8bit"][..], &["pipeline.shard_groups=2"]])
    {
        let before = references(&place.path("cache")).len();
        let said = train(&place, &[&["--run-dir", &format!("runs/{before}")][..], &set(sets)].concat());
        has(&said.stdout(), &[NOTE]);
        assert_eq!(references(&place.path("cache")).len(), before + 1, "{sets:?}");
    }
    let rounded: serde_json::Value = place.lines("runs/5")[0].clone();
    assert!((rounded["loss"].as_f64().unwrap() - std::f64::consts::LN_2).abs() < 1e-7, "{rounded}");
    let none = ["--run-dir", "runs/without", "--set", "train.reference=none"];
    let said = train(&place, &none);
    assert!(!said.stdout().contains(NOTE), "there is none");
    assert_ne!(said.hash(), whole.hash());
}

#[test]
fn a_run_that_goes_on_is_refused_before_its_pairs_are_evaluated_and_one_that_is_done_stays_as_it_was() {
    let place = place();
    let texts = ["train.objective=cross-entropy", "data.field=chosen", "train.steps=2"];
    train(&place, &[&["--run-dir", "runs/texts"], &set(&texts)[..]].concat());
    train(&place, &["--run-dir", "runs/pairs", "--steps", "2"]);
    for kept in references(&place.path("cache")) {
        fs::remove_file(kept).unwrap();
    }
    let adapters = ["lora.rank=2", "lora.targets=[\"*.attn.q\"]"];
    for (run, sets, expected) in [
        (
            "texts",
            &[][..],
            "train.objective: the steps before had another objective, and the reference would be",
        ),
        ("pairs", &adapters, "lora_a"),
    ] {
        let dir = format!("runs/{run}");
        let args = ["train", "my.toml", "--run-dir", &dir, "--resume", "--allow-other-data"];
        let said = place.run_with(&args, sets).refused();
        assert!(said.contains(expected), "{run}: {said}");
        assert_eq!(references(&place.path("cache")), Vec::<PathBuf>::new(), "{run}: nothing is evaluated");
    }

    let before = place.text("runs/pairs/config.toml");
    train(&place, &["--run-dir", "runs/pairs", "--resume", "--steps", "2", "--set", "train.objective=ipo"]);
    assert_eq!(place.text("runs/pairs/config.toml"), before);
}

#[test]
fn an_evaluation_has_the_loss_and_the_metrics_of_the_validation() {
    let place = place();
    train(&place, &[]);
    let told = place.lines("runs/small");
    let told = told.last().unwrap();
    let text = place.run(&["evaluate", "runs/small", "--format", "json"]).done().stdout();
    let found: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(found["loss"], told["validation_loss"]);
    assert_eq!(found["targets"], 4.0);
    for metric in ["accuracy", "margin", "chosen", "rejected"] {
        assert_eq!(found[metric], told[format!("validation_{metric}")], "{metric}: {told}");
    }
    let said = place.run(&["evaluate", "runs/small"]).done().stdout();
    has(&said, &["20 pairs of answers", "4 for validation", "accuracy", "margin", "4 targets"]);
    // With adapters too, it finds the tokens and the reference that training has kept.
    let adapters = set(&["lora.rank=2", "lora.targets=[\"*.attn.q\"]"]);
    train(&place, &[&["--run-dir", "runs/adapted"], &adapters[..]].concat());
    let files = || fs::read_dir(place.path("cache")).unwrap().count();
    let before = files();
    for run in ["runs/small", "runs/adapted"] {
        place.run(&["evaluate", run]).done();
    }
    assert_eq!(files(), before, "nothing is made again");
}

#[test]
fn a_run_on_documents_is_evaluated_on_pairs_and_the_other_way_around() {
    let place = place();
    let texts = "{\"text\": \"What comes after 7? 8\"}\n".repeat(40);
    place.write("texts.jsonl", texts);
    let sets = set(&["train.objective=cross-entropy", "data.path=texts.jsonl", "data.loss_on=all"]);
    train(&place, &[&["--run-dir", "runs/texts"], &sets[..]].concat());
    let of =
        |run: &str, sets: &[&str]| place.run(&[&["evaluate", run], &set(sets)[..]].concat()).done().stdout();
    let pairs = of("runs/texts", &["train.objective=dpo", "data.path=pairs.jsonl"]);
    has(&pairs, &["pairs of answers", "margin"]);
    train(&place, &[]);
    let texts = of("runs/small", &["train.objective=cross-entropy", "data.path=texts.jsonl"]);
    has(&texts, &["documents", "perplexity"]);
}

#[test]
fn settings_that_do_not_fit_pairs_are_refused_by_their_key() {
    let place = place();
    for (sets, expected) in [
        (
            &["pipeline.micro_batch_size=3"][..],
            "pipeline.micro_batch_size: a micro-batch of 3 rows would part",
        ),
        (&["pipeline.batch_size=12"], "pipeline.batch_size: a micro-batch of 3 rows would part"),
        (&["data.packing=apart"], "data.packing: each answer of a pair has a row of its own"),
        (&["data.loss_on=all"], "data.loss_on: of pairs of answers only the answers count"),
        (&["data.field=text"], "data.field: pairs of answers are read from \"chosen\" and \"rejected\""),
        (&["data.kind=text"], "data.kind: pairs of answers are records"),
        (
            &["optimizer.label_smoothing=0.5"],
            "optimizer.label_smoothing: label smoothing 0.5 is no share of wrong pairs: choose one in 0..0.5",
        ),
        (
            &["train.objective=ipo", "optimizer.label_smoothing=0.1"],
            "optimizer.label_smoothing: IPO has no label smoothing: leave it out, or take DPO",
        ),
        (&["train.beta=0"], "train.beta: 0 is not allowed: it must be above 0"),
        (&["train.objective=kto"], "train.objective"),
        (&["train.objective=cross-entropy", "train.beta=0.2"], "train.beta is for train.objective"),
    ] {
        let said = place.run_with(&["train", "my.toml"], sets).refused();
        assert!(said.contains(expected), "{sets:?}: {said}");
    }
    assert!(!place.path("runs").exists(), "nothing was begun");
}

#[test]
fn a_plan_and_measured_costs_know_pairs() {
    let place = place();
    let said = place.run(&["plan", "my.toml"]).done().stdout();
    has(&said, &["pairs/s"]);
    place.run(&["profile", "my.toml"]).done();
    let costs = place.text("costs.json");
    has(&costs, &["train.objective"]);
    let said = place.run(&["plan", "my.toml", "--set", "pipeline.costs=costs.json"]).done().stdout();
    has(&said, &["pairs/s"]);
    let said = place.run(&["tune", "my.toml", "--ranks", "1,2", "--top", "1"]).done().stdout();
    has(&said, &["pairs/s", "chosen: "]);
    assert!(!place.path("cache").exists() || references(&place.path("cache")).is_empty());
}

/// The numbers of an evaluation.
fn evaluated(place: &Place, args: &[&str]) -> serde_json::Value {
    let text = place.run(&[&["evaluate", "--format", "json"], args].concat()).done().stdout();
    let mut found: serde_json::Value = serde_json::from_str(&text).unwrap();
    found.as_object_mut().unwrap().remove("seconds");
    found
}

#[test]
fn a_reward_model_starts_from_a_model_of_texts_and_is_exported_as_one_for_transformers() {
    let place = place();
    let run = |name: &str, sets: &[&str]| {
        let sets = [&["train.objective=reward"], sets].concat();
        train(&place, &[&["--run-dir", &format!("runs/{name}")], &set(&sets)[..]].concat())
    };
    let one = run("one", &["pipeline.stages=1"]);
    has(&one.stdout(), &["20 pairs of answers", "accuracy", "margin"]);
    assert!(!one.stdout().contains("is the reference"), "there is none");
    let adapters = ["lora.rank=2", "lora.targets=[\"*.attn.q\", \"*.mlp.down\"]"];
    let adapted = run("adapted", &adapters).hash();
    for (name, sets, same) in [
        ("three", &["pipeline.stages=3"][..], &one.hash()),
        ("replicas", &["pipeline.replicas=2", "optimizer.sharded=true"], &one.hash()),
        ("adapted-three", &["pipeline.stages=3", adapters[0], adapters[1]], &adapted),
    ] {
        assert_eq!(run(name, sets).hash(), *same, "{name}");
    }
    let blocks = run("blocks", &["model.base=q8", adapters[0], adapters[1]]).hash();
    assert_eq!(
        run("blocks-three", &["model.base=q8", "pipeline.stages=3", adapters[0], adapters[1]]).hash(),
        blocks
    );

    // Resumed, it has the head that it had.
    run("whole", &[]);
    let half = |args: &[&str]| train(&place, &[&["--run-dir", "runs/half"], args].concat());
    half(&["--steps", "2", "--set", "train.objective=reward"]);
    assert_eq!(
        place.run(&["train", "--run-dir", "runs/half", "--resume", "--weights-hash"]).done().hash(),
        one.hash()
    );

    place.run(&["export", "runs/one", "judge"]).done();
    let described: serde_json::Value = serde_json::from_str(&place.text("judge/config.json")).unwrap();
    assert_eq!(described["architectures"], serde_json::json!(["LlamaForSequenceClassification"]));
    assert_eq!(described["id2label"], serde_json::json!({"0": "LABEL_0"}));
    let found = evaluated(&place, &["runs/one"]);
    let exported = ["runs/one", "--set", "model.path=judge"];
    assert_eq!(evaluated(&place, &exported), found);
    let said = run("goes-on", &["model.path=judge", "train.steps=1", "optimizer.learning_rate=1e-30"]);
    has(&said.stdout(), &["done: 1 step"]);

    // Adapters have the head beside them, as PEFT saves it.
    place.run(&["export", "runs/adapted", "adapters"]).done();
    let described: serde_json::Value =
        serde_json::from_str(&place.text("adapters/adapter_config.json")).unwrap();
    assert_eq!(described["task_type"], "SEQ_CLS");
    assert_eq!(described["modules_to_save"], serde_json::json!(["score"]));
    let from_adapters =
        run("from-adapters", &["lora.path=adapters", "train.steps=1", "optimizer.learning_rate=1e-30"]);
    assert_eq!(from_adapters.hash(), adapted);
    // Adapters of a model of texts are a start too; the other way around they are refused.
    train(&place, &[&["--run-dir", "runs/texts", "--steps", "1"], &set(&adapters)[..]].concat());
    place.run(&["export", "runs/texts", "of-texts"]).done();
    has(&run("from-texts", &["lora.path=of-texts", "train.steps=1"]).stdout(), &["done: 1 step"]);
    let said = place.run_with(&["train", "my.toml"], &["lora.path=adapters"]).refused();
    assert!(said.contains("`adapters` has a reward model: it gives a text one number"), "{said}");
    let described = place.text("of-texts/adapter_config.json");
    place.write("of-texts/adapter_config.json", described.replace("\"CAUSAL_LM\"", "null"));
    has(&run("from-none", &["lora.path=of-texts", "train.steps=1"]).stdout(), &["done: 1 step"]);
    let described = described.replace("CAUSAL_LM", "SEQ_CLS");
    place.write("of-texts/adapter_config.json", described);
    let said =
        place.run_with(&["train", "my.toml"], &["lora.path=of-texts", "train.objective=reward"]).refused();
    assert!(said.contains("score.weight is missing"), "{said}");
    place.run(&["export", "runs/adapted", "merged", "--merge"]).done();
    assert!(place.text("merged/config.json").contains("LlamaForSequenceClassification"));
}

#[test]
fn what_a_reward_model_cannot_do_is_refused_by_its_key() {
    let place = place();
    for (sets, expected) in [
        (&["optimizer.label_smoothing=0.1"][..], "optimizer.label_smoothing: the loss of rewards has none"),
        (&["pipeline.shards=2"], "pipeline.shards: a reward model has one output, which is not divided"),
        (&["pipeline.shard_groups=2"], "pipeline.shard_groups: a reward model has one output"),
        (&["train.sample_every=1"], "train.sample_every: a reward model writes no text"),
        (&["train.reference=none"], "train.reference is for train.objective"),
        (&["train.beta=0.3"], "train.beta is for train.objective"),
        (&["lora.rank=2", "lora.targets=[\"score\"]"], "lora.targets: `score` fits nothing"),
    ] {
        let sets = [&["train.objective=reward"], sets].concat();
        let said = place.run_with(&["train", "my.toml"], &sets).refused();
        assert!(said.contains(expected), "{sets:?}: {said}");
    }
    let sets = ["train.objective=reward", "train.steps=1", "pipeline.stages=1"];
    train(&place, &[&["--run-dir", "runs/judge"], &set(&sets)[..]].concat());
    let said = place.run(&["sample", "runs/judge"]).refused();
    assert!(said.contains("a reward model writes no text"), "{said}");
    place.run(&["export", "runs/judge", "judge"]).done();
    for command in ["sample", "serve"] {
        let said = place.run(&[command, "judge"]).refused();
        assert!(said.contains("judge: a reward model writes no text"), "{said}");
    }
    for sets in [&["train.objective=dpo"][..], &["train.objective=cross-entropy", "data.field=chosen"]] {
        let sets = [&["model.path=judge"], sets].concat();
        let said = place.run_with(&["train", "my.toml"], &sets).refused();
        let expected = "`judge` has a reward model: it gives a text one number (score.weight), and no scores";
        assert!(said.contains(expected), "{said}");
    }
}
