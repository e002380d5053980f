use super::*;

#[test]
fn an_empty_file_gives_the_defaults() {
    let config = parse("").unwrap();
    assert_eq!((config.model.kind, config.data.kind), (ModelKind::Gpt, DataKind::Text));
    assert_eq!((config.model.vocab, config.pipeline.stages, config.micro_batch_size()), (256, 2, 8));
}

#[test]
fn the_file_the_environment_and_set_override_in_this_order() {
    let environment = [("PIPEWRIGHT_MODEL__DIM", "32"), ("PIPEWRIGHT_MODEL__LAYERS", "3"), ("HOME", "/")];
    let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let text = "[model]\ndim = 16\nlayers = 2\nheads = 2";
    let config = Config::parse("my.toml", text, &environment, &["model.layers=5".to_owned()]).unwrap();
    assert_eq!((config.model.dim, config.model.layers, config.model.heads), (32, 5, 2));
}

#[test]
fn set_takes_text_without_quotes_and_lists() {
    let sets = [
        "data.path=a b.txt",
        "train.name=2024-05-01",
        "pipeline.schedule=gpipe",
        "model.tied=true",
        "optimizer.betas=[0.8, 0.9]",
        "optimizer.learning_rate=1",
    ];
    let config = with_sets("", &sets).unwrap();
    assert_eq!(config.data.path.0, [PathBuf::from("a b.txt")]);
    assert_eq!((config.train.name.as_str(), config.model.tied), ("2024-05-01", true));
    assert_eq!((config.optimizer.betas, config.optimizer.learning_rate), (Some((0.8, 0.9)), 1.0));
    assert_eq!(with_sets("", &["train.name=17"]).unwrap().train.name, "17");
    assert_eq!(with_sets("", &[r#"data.path=["a", "b"]"#]).unwrap().data.path.0.len(), 2);
}

#[test]
fn sizes_are_text_or_a_list() {
    let mlp = "[model]\nkind = 'mlp'\n[data]\nkind = 'idx'\n";
    for sizes in ["model.sizes=784, 32,10", "model.sizes=[784, 32, 10]", "model.sizes='784,32,10'"] {
        assert_eq!(with_sets(mlp, &[sizes]).unwrap().model.sizes.0, [784, 32, 10]);
    }
}

#[test]
fn the_loss_has_the_unit_of_what_the_data_holds() {
    let unit = |config: &str| parse(config).unwrap().loss_unit();
    assert_eq!(unit("[model]\nkind = 'mlp'\n[data]\nkind = 'idx'\n"), ("nats", "image"));
    assert_eq!(unit("[data]\nkind = 'tokens'\n"), ("nats", "token"));
    assert_eq!(unit("[data]\nkind = 'text'\n"), ("nats", "token"));
    let chats = "[data]\nkind = 'jsonl'\ntokenizer = 'tokenizer.json'\n";
    assert_eq!(unit(chats), ("nats", "token"));
    assert_eq!(unit(&format!("{chats}loss_on = 'answers'\n")), ("nats", "answer token"));
}

#[test]
fn validation_is_a_fraction_or_a_count() {
    assert_eq!(parse("[data]\nvalidation = 0.25").unwrap().data.validation, Share::Fraction(0.25));
    assert_eq!(parse("[data]\nvalidation = 2000").unwrap().data.validation, Share::Count(2000));
}

#[test]
fn a_written_config_reads_back_as_itself() {
    let mlp = "[model]\nkind = 'mlp'\nsizes = '9,3'\n[data]\nkind = 'idx'\npath = 'x'\n\
               [optimizer]\nkind = 'sgd'\n";
    let gpt =
        "[data]\npath = ['a', 'b']\n[pipeline]\nbatch_size = 64\n[metrics]\nlisten = '127.0.0.1:9400'\n";
    for text in [mlp, gpt, ""] {
        let written = parse(text).unwrap().resolved_toml().unwrap();
        assert_eq!(parse(&written).unwrap().resolved_toml().unwrap(), written);
    }
    let written = parse(mlp).unwrap().resolved_toml().unwrap();
    for absent in ["heads", "seq", "dtype = \"u16\"", "betas", "warmup_steps"] {
        assert!(!written.contains(absent), "{written}");
    }
    assert!(written.starts_with("[model]\nkind = \"mlp\"\n"), "{written}");
}

#[test]
fn a_kind_chosen_by_set_leaves_the_files_keys_of_other_kinds_behind() {
    let text = "[optimizer]\nbetas = [0.9, 0.99]\nschedule = 'cosine'\nwarmup_steps = 10";
    let config = with_sets(text, &["optimizer.kind=sgd", "optimizer.schedule=constant"]).unwrap();
    assert_eq!(compose::learning_rate(&config), LearningRate::Constant(1e-3));
}

#[test]
fn a_stronger_batch_size_or_stage_count_wins_over_what_says_the_same() {
    let config = with_sets("[pipeline]\nmicro_batch_size = 3", &["pipeline.batch_size=20"]).unwrap();
    assert_eq!(config.micro_batch_size(), 5);
    let config = with_sets("[pipeline]\nbatch_size = 32", &["pipeline.micro_batch_size=3"]).unwrap();
    assert_eq!(config.micro_batch_size(), 3);
    let config = with_sets("[pipeline]\nbatch_size = 32", &["pipeline.micro_batches=16"]).unwrap();
    assert_eq!(config.micro_batch_size(), 2);
    let lists = "[model]\nlayers = 1\n[pipeline]\npartition = [['embed'], ['h.0.attn', 'h.0.mlp'], ['head']]";
    assert_eq!(stages(&parse(lists).unwrap()).len(), 3);
    assert_eq!(stages(&with_sets(lists, &["pipeline.stages=1"]).unwrap()).len(), 1);
}

#[test]
fn every_example_is_a_config() {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("examples");
    let mut count = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            let mut sets = Vec::new();
            if path.ends_with("finetune-smollm2.toml") || path.ends_with("lora-smollm2.toml") {
                // A small model stands in for the one that is fetched.
                let golden =
                    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("tests/golden/hf/llama");
                sets.push(format!("model.path={}", golden.display()));
                sets.push("data.seq=32".to_owned());
            }
            Config::load(&path, &sets).unwrap_or_else(|error| panic!("{error}"));
            count += 1;
        }
    }
    assert!(count >= 1);
    assert_eq!(Config::built_in(&[]).unwrap().data.path.0[0], PathBuf::from("builtin:shakespeare"));
}
