use super::*;

fn text_file(bytes: &[u8]) -> (tempfile::TempDir, String) {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("text.txt");
    fs::write(&path, bytes).unwrap();
    let set = format!("data.path={}", path.display());
    (folder, set)
}

#[test]
fn text_is_split_and_given_in_micro_batches() {
    let (_folder, set) = text_file(&[b'a'; 1000]);
    let config =
        with_sets("[data]\nseq = 9\nvalidation = 0.2\n[pipeline]\nmicro_batch_size = 2", &[&set]).unwrap();
    let data = compose::data(&config).unwrap();
    assert!(data.summary.ends_with("text.txt`: 1000 bytes, the last 200 for validation"), "{}", data.summary);
    assert_eq!(data.validation[0].micro_batches, 11);
    let (input, _) = data.train.micro_batch(0, MicroBatch(0)).unwrap();
    assert_eq!((input.dims(), input.ids()[0]), (&[2, 9][..], u32::from(b'a')));
    let config = with_sets("[data]\nseq = 9\nvalidation = 0", &[&set]).unwrap();
    assert!(compose::data(&config).unwrap().validation.is_empty());
}

#[test]
fn data_that_cannot_be_used_is_refused() {
    let (_folder, set) = text_file(b"a short text");
    let refusal = |config: Config| compose::data(&config).unwrap_err().to_string();
    has(&refusal(with_sets("", &[&set]).unwrap()), &["text.txt` is too short", "one window needs 129"]);
    let said = refusal(with_sets("[data]\nseq = 2\n[model]\nvocab = 100", &[&set]).unwrap());
    has(&said, &["token 115 at position 2 is outside the model's vocabulary of 100"]);
    let said = refusal(parse("").unwrap());
    assert_eq!(said, "data.path: there are no data: name a file or a folder");
}

#[test]
fn the_learning_rate_ends_with_the_run() {
    let config = parse("[optimizer]\nschedule = 'cosine'\nwarmup_steps = 5\n[train]\nsteps = 70").unwrap();
    let expected = LearningRate::WarmupCosine { peak: 1e-3, floor: 0.0, warmup_steps: 5, total_steps: 70 };
    assert_eq!(compose::learning_rate(&config), expected);
    let text = "[optimizer]\nschedule = 'linear'\nmin_learning_rate = 1e-4\n[train]\nsteps = 70";
    let expected = LearningRate::WarmupLinear { peak: 1e-3, floor: 1e-4, warmup_steps: 0, total_steps: 70 };
    assert_eq!(compose::learning_rate(&parse(text).unwrap()), expected);
    let text = "[optimizer]\nschedule = 'wsd'\nwarmup_steps = 5\ndecay_steps = 7\n[train]\nsteps = 70";
    let expected =
        LearningRate::Wsd { peak: 1e-3, floor: 0.0, warmup_steps: 5, decay_steps: 7, total_steps: 70 };
    assert_eq!(compose::learning_rate(&parse(text).unwrap()), expected);
}

#[test]
fn optimizers_are_told_by_their_state() {
    let states = |text: &str| compose::optimizer(&parse(text).unwrap()).states("fc.weight", &[2, 3]);
    let names = |text: &str| -> Vec<&str> { states(text).iter().map(|state| state.name).collect() };
    assert_eq!(names(""), ["exp_avg", "exp_avg_sq"]);
    assert_eq!(names("[optimizer]\nkind = 'sgd'"), ["momentum_buffer"]);
    assert_eq!(names("[optimizer]\nkind = 'sgd'\nmomentum = 0.0"), [""; 0]);
    assert_eq!(names("[optimizer]\nkind = 'lion'"), ["exp_avg"]);
    assert_eq!(names("[optimizer]\nkind = 'muon'"), ["momentum_buffer"]);
    assert_eq!(names("[optimizer]\nkind = 'adafactor'"), ["row_var", "col_var"]);
}

#[test]
fn changes_that_make_another_run_are_told_from_those_that_do_not() {
    let saved = parse("[pipeline]\nmicro_batch_size = 8").unwrap();
    let harmless = "[pipeline]\nstages = 4\nchunks = 2\nschedule = 'looped-bfs'\nrecompute = 'full'\n\
                    threads_per_rank = 2\npin = false\nbatch_size = 32\n\
                    [train]\nsteps = 7\n[checkpoint]\nevery = 0\n[metrics]\nlisten = '127.0.0.1:1'";
    assert_eq!(parse(harmless).unwrap().changes_from(&saved).unwrap(), [""; 0]);
    let other = "[data]\npath = 'x'\n[optimizer]\nschedule = 'cosine'\n[train]\nsteps = 7";
    assert_eq!(
        parse(other).unwrap().changes_from(&saved).unwrap(),
        [
            "data.path: [] -> \"x\"",
            "optimizer.schedule: \"constant\" -> \"cosine\"",
            "optimizer.warmup_steps: none -> 0",
            "optimizer.min_learning_rate: none -> 0.0",
            "train.steps: 1000 -> 7",
        ]
    );
    for schedule in ["linear", "wsd"] {
        let run = |steps| format!("[optimizer]\nschedule = '{schedule}'\n[train]\nsteps = {steps}");
        let changes = parse(&run(300)).unwrap().changes_from(&parse(&run(200)).unwrap());
        assert_eq!(changes.unwrap(), ["train.steps: 200 -> 300"], "{schedule}");
    }
}

#[test]
fn what_is_recomputed_is_one_word_or_a_list() {
    let each = "[pipeline]\nrecompute = ['full', 'selective']";
    for config in [
        parse("").unwrap(),
        with_sets(each, &[]).unwrap(),
        with_sets(each, &["pipeline.recompute=selective"]).unwrap(),
        with_sets("", &["pipeline.recompute=[\"none\", \"full\"]"]).unwrap(),
    ] {
        assert_eq!(stages(&config).len(), 2);
        let again = parse(&config.resolved_toml().unwrap()).unwrap();
        // What is written says how sums are grouped.
        let mut written = config.pipeline.clone();
        written.gradient_groups = Some(config.gradient_groups());
        written.shard_groups = Some(config.shard_groups());
        assert_eq!(again.pipeline, written);
    }
}
