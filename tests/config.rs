//! Config: how sources override each other, what is built, and what is said of every mistake.

use std::fs;
use std::path::{Path, PathBuf};

use pipewright::Error;
use pipewright::config::{Config, DataKind, ModelKind, Validation};
use pipewright::id::MicroBatch;
use pipewright::stages::optimizer::LearningRate;

fn parse(text: &str) -> pipewright::Result<Config> {
    Config::parse("my.toml", text, &[], &[])
}

fn with_sets(text: &str, sets: &[&str]) -> pipewright::Result<Config> {
    let sets: Vec<String> = sets.iter().map(ToString::to_string).collect();
    Config::parse("my.toml", text, &[], &sets)
}

fn refused(result: pipewright::Result<Config>) -> String {
    let error = result.expect_err("a refusal");
    assert!(matches!(error, Error::Invalid(_)), "{error:?}");
    error.to_string()
}

/// Each text is refused with a message that holds each of the parts.
fn all_refused(cases: &[(&str, &[&str])]) {
    for (text, parts) in cases {
        let said = refused(parse(text));
        for part in *parts {
            assert!(said.contains(part), "{text:?} said {said:?}, without {part:?}");
        }
    }
}

mod sources {
    use super::*;

    #[test]
    fn an_empty_file_gives_the_defaults() {
        let config = parse("").unwrap();
        assert_eq!(
            (config.model.kind, config.data.kind),
            (ModelKind::Gpt, DataKind::Text)
        );
        assert_eq!(
            (
                config.model.vocab,
                config.pipeline.stages,
                config.micro_batch_size()
            ),
            (256, 2, 8)
        );
    }

    #[test]
    fn the_file_the_environment_and_set_override_in_this_order() {
        let environment = [
            ("PIPEWRIGHT_MODEL__DIM", "32"),
            ("PIPEWRIGHT_MODEL__LAYERS", "3"),
            ("HOME", "/"),
        ];
        let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let text = "[model]\ndim = 16\nlayers = 2\nheads = 2";
        let config = Config::parse("my.toml", text, &environment, &["model.layers=5".to_owned()]).unwrap();
        assert_eq!(
            (config.model.dim, config.model.layers, config.model.heads),
            (32, 5, 2)
        );
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
        assert_eq!(
            (config.train.name.as_str(), config.model.tied),
            ("2024-05-01", true)
        );
        assert_eq!(
            (config.optimizer.betas, config.optimizer.learning_rate),
            ((0.8, 0.9), 1.0)
        );
        assert_eq!(with_sets("", &["train.name=17"]).unwrap().train.name, "17");
        assert_eq!(
            with_sets("", &[r#"data.path=["a", "b"]"#])
                .unwrap()
                .data
                .path
                .0
                .len(),
            2
        );
    }

    #[test]
    fn sizes_are_text_or_a_list() {
        let mlp = "[model]\nkind = 'mlp'\n[data]\nkind = 'idx'\n";
        for sizes in [
            "model.sizes=784, 32,10",
            "model.sizes=[784, 32, 10]",
            "model.sizes='784,32,10'",
        ] {
            assert_eq!(with_sets(mlp, &[sizes]).unwrap().model.sizes.0, [784, 32, 10]);
        }
    }

    #[test]
    fn validation_is_a_fraction_or_a_count() {
        assert_eq!(
            parse("[data]\nvalidation = 0.25").unwrap().data.validation,
            Validation::Fraction(0.25)
        );
        assert_eq!(
            parse("[data]\nvalidation = 2000").unwrap().data.validation,
            Validation::Count(2000)
        );
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
        for absent in ["heads", "seq", "dtype", "betas", "warmup_steps"] {
            assert!(!written.contains(absent), "{written}");
        }
        assert!(written.starts_with("[model]\nkind = \"mlp\"\n"), "{written}");
    }

    #[test]
    fn a_kind_chosen_by_set_leaves_the_files_keys_of_other_kinds_behind() {
        let text = "[optimizer]\nbetas = [0.9, 0.99]\nschedule = 'cosine'\nwarmup_steps = 10";
        let config = with_sets(text, &["optimizer.kind=sgd", "optimizer.schedule=constant"]).unwrap();
        assert_eq!(config.learning_rate(), LearningRate::Constant(1e-3));
    }

    #[test]
    fn a_stronger_batch_size_or_stage_count_wins_over_what_says_the_same() {
        let config = with_sets("[pipeline]\nmicro_batch_size = 3", &["pipeline.batch_size=20"]).unwrap();
        assert_eq!(config.micro_batch_size(), 5);
        let config = with_sets("[pipeline]\nbatch_size = 32", &["pipeline.micro_batch_size=3"]).unwrap();
        assert_eq!(config.micro_batch_size(), 3);
        let config = with_sets("[pipeline]\nbatch_size = 32", &["pipeline.micro_batches=16"]).unwrap();
        assert_eq!(config.micro_batch_size(), 2);
        let lists =
            "[model]\nlayers = 1\n[pipeline]\npartition = [['embed'], ['h.0.attn', 'h.0.mlp'], ['head']]";
        assert_eq!(parse(lists).unwrap().partitioned().unwrap().len(), 3);
        assert_eq!(
            with_sets(lists, &["pipeline.stages=1"])
                .unwrap()
                .partitioned()
                .unwrap()
                .len(),
            1
        );
    }

    #[test]
    fn every_example_is_a_config() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
        let mut count = 0;
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "toml") {
                Config::load(&path, &[]).unwrap_or_else(|error| panic!("{error}"));
                count += 1;
            }
        }
        assert!(count >= 1);
        assert_eq!(
            Config::built_in(&[]).unwrap().data.path.0[0],
            PathBuf::from("README.md")
        );
    }
}

mod keys {
    use super::*;

    #[test]
    fn unknown_keys_and_sections_name_the_place_and_the_nearest_right_one() {
        all_refused(&[
            (
                "\n\n[optimizer]\nlerning_rate = 1",
                &[
                    "my.toml:4: unknown key optimizer.lerning_rate",
                    "did you mean `learning_rate`?",
                ],
            ),
            (
                "[pipeline]\nmicrobatches = 1",
                &["my.toml:2: ", "did you mean `micro_batches`?"],
            ),
            (
                "[model]\nsteps = 5",
                &["unknown key model.steps: it belongs to [train]"],
            ),
            (
                "[metrics]\nzzz = 5",
                &["unknown key metrics.zzz: keys of [metrics]: listen"],
            ),
            (
                "[optimiser]\nkind = 'sgd'",
                &["my.toml:1: unknown section [optimiser]: did you mean [optimizer]?"],
            ),
            (
                "[zzz]",
                &["unknown section [zzz] (sections: model, data, pipeline"],
            ),
            (
                "steps = 5",
                &["my.toml:1: `steps` stands in no section: did you mean train.steps?"],
            ),
            ("seed = 5", &["did you mean model.seed or data.seed?"]),
            (
                "zzz = 5",
                &["`zzz` stands in no section: every key belongs to a section"],
            ),
        ]);
    }

    #[test]
    fn set_and_environment_are_named_as_the_place() {
        assert!(
            refused(with_sets("", &["model.dmi=3"]))
                .starts_with("--set: unknown key model.dmi: did you mean `dim`?")
        );
        assert!(refused(with_sets("", &["modle.dim=3"])).starts_with("--set: unknown section [modle]"));
        assert!(refused(with_sets("", &["steps=3"])).contains("did you mean train.steps?"));
        assert!(
            refused(with_sets("", &["train.steps"]))
                .contains("--set train.steps: expected section.key=value")
        );
        let variable = [("PIPEWRIGHT_MODEL__DIM".to_owned(), "wide".to_owned())];
        let said = refused(Config::parse("my.toml", "", &variable, &[]));
        assert!(
            said.starts_with("environment variable PIPEWRIGHT_MODEL__DIM: model.dim: expected a whole"),
            "{said}"
        );
    }

    #[test]
    fn keys_of_another_kind_are_refused() {
        all_refused(&[
            (
                "[model]\nkind = 'mlp'\ndim = 3\n[data]\nkind = 'idx'",
                &["my.toml:3: model.dim is for model.kind = \"gpt\"", "\"mlp\""],
            ),
            (
                "[optimizer]\nmomentum = 0.5",
                &["my.toml:2: optimizer.momentum is for optimizer.kind = \"sgd\""],
            ),
            (
                "[optimizer]\nwarmup_steps = 5",
                &["is for optimizer.schedule = \"cosine\", and this config has \"constant\""],
            ),
            (
                "[data]\nkind = 'tokens'\nlabels = 'x'",
                &["data.labels is for data.kind = \"idx\""],
            ),
        ]);
    }

    #[test]
    fn a_file_that_is_no_toml_or_is_missing_is_named() {
        all_refused(&[
            ("[model\ndim = 3", &["my.toml:1: "]),
            ("[model]\ndim = 3\ndim = 4", &["my.toml:3: ", "duplicate key"]),
            ("[model]\ndim = ", &["my.toml:2: "]),
        ]);
        let error = Config::load(Path::new("no/such.toml"), &[]).unwrap_err();
        assert!(
            error.to_string().starts_with("cannot read no/such.toml: "),
            "{error}"
        );
    }
}

mod values {
    use super::*;

    #[test]
    fn a_wrong_type_says_what_was_expected_and_what_was_found() {
        all_refused(&[
            (
                "[model]\n\ndim = 'wide'",
                &["my.toml:3: model.dim: expected a whole number, 0 or more, got \"wide\""],
            ),
            (
                "[model]\ndim = -4",
                &["model.dim: expected a whole number, 0 or more, got -4"],
            ),
            (
                "[train]\nsteps = 10.5",
                &["train.steps: expected a whole number, 0 or more, got 10.5"],
            ),
            (
                "[pipeline]\nmicro_batches = 5000000000",
                &["expected a whole number from 0 to 4294967295"],
            ),
            (
                "[optimizer]\nlearning_rate = 'fast'",
                &["optimizer.learning_rate: expected a number, got \"fast\""],
            ),
            (
                "[model]\ntied = 1",
                &["model.tied: expected true or false, got 1"],
            ),
            (
                "[train]\nname = 3",
                &["train.name: expected text in quotes, got 3"],
            ),
            (
                "[data]\npath = 3",
                &["data.path: expected a path in quotes or a list of them, got 3"],
            ),
            (
                "[data]\nvalidation = 'some'",
                &["expected a fraction from 0 to below 1, or a whole number"],
            ),
            (
                "[optimizer]\nbetas = [0.9]",
                &["optimizer.betas: expected a list of two numbers, got [0.9]"],
            ),
            (
                "[pipeline]\npartition = 'even'",
                &["expected \"balanced\" or a list of layer names for each stage"],
            ),
            (
                "[metrics]\nlisten = 9400",
                &["expected an address and a port such as \"127.0.0.1:9400\", got 9400"],
            ),
            (
                "[metrics]\nlisten = 'here'",
                &["expected an address and a port such as", "got \"here\""],
            ),
            (
                "[model]\nkind = 'gtp'",
                &["model.kind: expected `gpt` or `mlp`, got \"gtp\": did you mean \"gpt\"?"],
            ),
            (
                "[data]\nkind = 'txt'",
                &[
                    "expected one of `text`, `tokens`, `idx`",
                    "did you mean \"text\"?",
                ],
            ),
            (
                "[model]\nkind = 'mlp'\nsizes = 'a,b'",
                &["model.sizes: expected widths such as \"784,128,10\""],
            ),
        ]);
    }

    #[test]
    fn zero_is_refused_where_there_must_be_one() {
        let keys = [
            "model.vocab",
            "model.dim",
            "model.layers",
            "model.heads",
            "data.seq",
            "pipeline.stages",
            "pipeline.micro_batches",
            "pipeline.micro_batch_size",
            "pipeline.batch_size",
            "train.steps",
            "train.print_every",
            "train.validation_micro_batches",
            "checkpoint.keep",
        ];
        for key in keys {
            let said = refused(with_sets("", &[&format!("{key}=0")]));
            assert_eq!(said, format!("--set: {key}: is 0: set it to 1 or more"));
        }
    }

    #[test]
    fn impossible_values_say_what_to_do() {
        all_refused(&[
            (
                "[model]\ndim = 12\nheads = 5",
                &[
                    "my.toml:3: model.heads: model.dim 12 is not divisible by 5 heads: ",
                    "choose from 1, 2, 3, 4, 6, 12",
                ],
            ),
            (
                "[model]\ndropout = 1.0",
                &["my.toml:2: model.dropout: 1 is no probability below 1"],
            ),
            (
                "[model]\nkind = 'mlp'\nsizes = '10'\n[data]\nkind = 'idx'",
                &["model.sizes: [10]: give the widths"],
            ),
            (
                "[model]\nkind = 'mlp'",
                &["data.kind: a model of kind \"mlp\" takes images: set data.kind = \"idx\""],
            ),
            (
                "[data]\nkind = 'idx'",
                &["my.toml:2: data.kind: a model of kind \"gpt\" takes tokens"],
            ),
            (
                "[data]\nvalidation = 1.5",
                &["data.validation: 1.5 is neither a fraction"],
            ),
            (
                "[pipeline]\nbatch_size = 30",
                &["pipeline.batch_size: 30 rows cannot be divided into 4 micro-batches: take 28 or 32 rows"],
            ),
            (
                "[pipeline]\nbatch_size = 32\nmicro_batch_size = 4",
                &["my.toml:3: pipeline.micro_batch_size: 32 rows in 4 micro-batches make 8 each"],
            ),
            (
                "[optimizer]\nlearning_rate = 0",
                &["optimizer.learning_rate: 0 makes no sense: it must be above 0"],
            ),
            ("[optimizer]\nlearning_rate = nan", &["NaN makes no sense"]),
            (
                "[optimizer]\nbetas = [0.9, 1.0]",
                &["optimizer.betas: 1 makes no sense"],
            ),
            ("[optimizer]\neps = 0.0", &["optimizer.eps: 0 makes no sense"]),
            (
                "[optimizer]\nkind = 'sgd'\nmomentum = 1.0",
                &["optimizer.momentum: 1 makes no sense"],
            ),
            (
                "[optimizer]\nweight_decay = -1",
                &["optimizer.weight_decay: -1 makes no sense"],
            ),
            ("[optimizer]\nclip = -1", &["optimizer.clip: -1 makes no sense"]),
            (
                "[optimizer]\nschedule = 'cosine'\nmin_learning_rate = 1",
                &["it must be from 0 to optimizer.learning_rate"],
            ),
            (
                "[optimizer]\nschedule = 'cosine'\nwarmup_steps = 99\n[train]\nsteps = 9",
                &["my.toml:3: optimizer.warmup_steps: 99 steps of warm-up do not fit into train.steps = 9"],
            ),
            (
                "[train]\nname = 'a/b'",
                &["train.name: \"a/b\" cannot name a folder"],
            ),
            ("[train]\nname = ''", &["train.name: \"\" cannot name a folder"]),
        ]);
    }

    #[test]
    fn stages_partitions_and_schedules_that_cannot_be_are_named() {
        let small = "[model]\nlayers = 1\n[pipeline]\n";
        let with = |rest: &str| refused(parse(&format!("{small}{rest}")));
        let said = with("stages = 5");
        assert!(
            said.starts_with("my.toml:4: pipeline.stages: 5 stages for 4 layers"),
            "{said}"
        );
        let said = with("partition = [['embed'], ['h.0.attn', 'head']]");
        assert!(
            said.starts_with("my.toml:4: pipeline.partition: layer `h.0.mlp` is missing"),
            "{said}"
        );
        let said = with("partition = [['embed', 'h.0'], ['h.0.mlp', 'head']]");
        assert!(
            said.contains("pipeline.partition: layer `h.0.mlp` comes again in stage 1"),
            "{said}"
        );
        let said = with("partition = [['embed', 'h.0.atn'], ['h.0.mlp', 'head']]");
        assert!(
            said.contains("unknown layer `h.0.atn`: did you mean `h.0.attn`?"),
            "{said}"
        );
        let said = with("stages = 3\npartition = [['embed', 'h.0'], ['head']]");
        assert!(
            said.contains("pipeline.partition: it has 2 lists for 3 stages: give one list a stage"),
            "{said}"
        );
        let said = with("schedule = '1f2b'");
        assert!(
            said.starts_with("my.toml:4: pipeline.schedule: ") && said.contains("1f1b"),
            "{said}"
        );
    }
}

mod building {
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
        let config = with_sets(
            "[data]\nseq = 9\nvalidation = 0.2\n[pipeline]\nmicro_batch_size = 2",
            &[&set],
        )
        .unwrap();
        let data = config.data().unwrap();
        assert!(
            data.summary
                .ends_with("text.txt`: 1000 bytes, the last 200 for validation"),
            "{}",
            data.summary
        );
        assert_eq!(data.validation_micro_batches, 11);
        let (input, _) = data.train.micro_batch(0, MicroBatch(0), 0).unwrap();
        assert_eq!((input.dims(), input.ids()[0]), (&[2, 9][..], u32::from(b'a')));
        let config = with_sets("[data]\nseq = 9\nvalidation = 0", &[&set]).unwrap();
        assert!(config.data().unwrap().validation.is_none());
    }

    #[test]
    fn data_that_cannot_be_used_is_refused() {
        let (_folder, set) = text_file(b"a short text");
        let said = with_sets("", &[&set]).unwrap().data().unwrap_err().to_string();
        assert!(
            said.contains("text.txt` is too short") && said.contains("one window needs 129"),
            "{said}"
        );
        let said = with_sets("[data]\nseq = 2\n[model]\nvocab = 100", &[&set])
            .unwrap()
            .data()
            .unwrap_err()
            .to_string();
        assert!(
            said.contains("token 115 at position 2 is outside the model's vocabulary of 100"),
            "{said}"
        );
        let said = parse("").unwrap().data().unwrap_err().to_string();
        assert_eq!(said, "data.path: nothing to train on: name a file or a folder");
    }

    #[test]
    fn the_learning_rate_ends_with_the_run() {
        let config =
            parse("[optimizer]\nschedule = 'cosine'\nwarmup_steps = 5\n[train]\nsteps = 70").unwrap();
        let expected = LearningRate::WarmupCosine {
            peak: 1e-3,
            floor: 0.0,
            warmup_steps: 5,
            total_steps: 70,
        };
        assert_eq!(config.learning_rate(), expected);
    }

    #[test]
    fn optimizers_are_told_by_their_state() {
        assert_eq!(parse("").unwrap().optimizer().state_names().len(), 2);
        assert_eq!(
            parse("[optimizer]\nkind = 'sgd'")
                .unwrap()
                .optimizer()
                .state_names()
                .len(),
            1
        );
    }
}
