use super::*;

fn trained() -> Place {
    let place = Place::new();
    place.run(&["train", "my.toml", "--steps", "2"]).done();
    place
}

fn written(place: &Place, args: &[&str]) -> Vec<u8> {
    place.run(&[&["sample", "runs/small", "--tokens", "40"], args].concat()).done().0.stdout
}

#[test]
fn text_begins_with_the_prompt_and_has_as_many_bytes_as_asked_for() {
    let text = written(&trained(), &["--prompt", "the quick"]);
    assert!(text.starts_with(b"the quick"));
    assert_eq!(text.len(), "the quick".len() + 40 + "\n".len());
}

#[test]
fn the_seed_chooses_and_no_temperature_or_one_candidate_leaves_no_choice() {
    let place = trained();
    assert_eq!(written(&place, &["--seed", "3"]), written(&place, &["--seed", "3"]));
    assert_ne!(written(&place, &["--seed", "3"]), written(&place, &["--seed", "4"]));
    let likeliest = written(&place, &["--temperature", "0", "--seed", "5"]);
    assert_eq!(written(&place, &["--top-k", "1", "--seed", "6"]), likeliest);
    assert_eq!(written(&place, &["--top-k", "1000", "--seed", "3"]), written(&place, &["--seed", "3"]));
}

#[test]
fn a_checkpoint_can_be_named_itself() {
    let place = trained();
    let newest = place.run(&["sample", "runs/small", "--tokens", "9"]).done().stdout();
    let named =
        place.run(&["sample", "runs/small/checkpoints/step-00000002", "--tokens", "9"]).done().stdout();
    assert_eq!(newest, named);
}

#[test]
fn several_ranks_write_what_one_writes() {
    let place = trained();
    let alone = written(&place, &["--prompt", "the quick"]);
    for args in [&["--ranks", "3"][..], &["--devices", "cpu,cpu"]] {
        let args = [&["--prompt", "the quick"], args].concat();
        assert_eq!(written(&place, &args), alone, "{args:?}");
    }
    let half = written(&place, &["--prompt", "the quick", "--dtype", "bf16"]);
    assert_eq!(half.len(), alone.len());
    let args = ["--prompt", "the quick", "--dtype", "bf16", "--ranks", "2"];
    assert_eq!(written(&place, &args), half);
}

#[test]
fn what_cannot_be_is_refused() {
    let place = trained();
    let refused = |args: &[&str]| place.run(args).refused();
    let nothing = "none is neither a checkpoint, nor a run that has one, nor a model's folder with a \
                   config.json: train first, or import a model";
    assert!(refused(&["sample", "none"]).contains(nothing));
    assert!(refused(&["sample", "runs/small", "--prompt", ""]).contains("--prompt: it is empty"));
    for temperature in [&["--temperature=-1"][..], &["--temperature", "-1"]] {
        let said = refused(&[&["sample", "runs/small"], temperature].concat());
        assert_eq!(said, "error: --temperature -1: it must be 0 or more\n");
    }
    let said = refused(&["sample", "runs/small", "--ranks", "7"]);
    assert_eq!(said, "error: --ranks: a model of 6 layers has stages for 6 ranks at most\n");
    let said = refused(&["sample", "runs/small", "--ranks", "3", "--devices", "cpu,cpu"]);
    assert_eq!(said, "error: --devices: 2 devices for 3 ranks: name one for all, or one for each\n");
    assert!(refused(&["sample", "runs/small", "--devices", "gpu"]).contains("`gpu` is no device"));
    assert!(refused(&["sample", "runs/small", "--top-k", "0"]).contains("--top-k 0: it must be 1 or more"));
}

#[test]
fn a_model_on_token_files_reads_and_writes_tokens() {
    let place = Place::new();
    let tokens: Vec<u8> = (0..900_u16).flat_map(|index| (index % 300).to_le_bytes()).collect();
    place.write("tokens.bin", tokens);
    let sets = ["--set", "data.kind=tokens", "--set", "data.path=tokens.bin", "--set", "model.vocab=300"];
    place.run(&[&["train", "my.toml", "--steps", "1"], &sets[..]].concat()).done();
    let text = place.run(&["sample", "runs/small", "--prompt", "17 299", "--tokens", "3"]).done().stdout();
    let written: Vec<u32> = text.split_whitespace().map(|token| token.parse().unwrap()).collect();
    assert_eq!((written.len(), &written[..2]), (5, &[17, 299][..]));
    let said = place.run(&["sample", "runs/small"]).refused();
    assert!(said.starts_with("error: --prompt: this model reads tokens: give the numbers"), "{said}");
    has(&place.run(&["sample", "runs/small", "--prompt", "17 x"]).refused(), &["--prompt: `x` is no token"]);
    let said = place.run(&["sample", "runs/small", "--prompt", "300"]).refused();
    has(&said, &["token 300 is outside the model's vocabulary of 300"]);
}

#[test]
fn a_text_longer_than_the_context_is_refused_or_told() {
    let place = trained();
    let said = place.run(&["sample", "runs/small", "--prompt", "the quick brown f"]).refused();
    assert_eq!(
        said,
        "error: --prompt: it has 17 tokens, and the model's context is 16: shorten it by 1 or more\n"
    );
    let sample = |tokens| {
        place.run(&["sample", "runs/small", "--prompt", "the quick brown ", "--tokens", tokens]).done()
    };
    assert_eq!(sample("1").stderr(), "");
    assert_eq!(
        sample("2").stderr(),
        "warning: this text is longer than the model's context of 16 tokens: its end was written after the \
         last half of a context only\n"
    );
    let set = ["train", "my.toml", "--run-dir", "other", "--set", "train.sample_every=2"];
    let said = place.run(&[&set[..], &["--set", "train.sample_prompt=the quick brown f"]].concat()).refused();
    has(&said, &["train.sample_prompt: it has 17 tokens, and the model's context is 16"]);
}

#[test]
fn a_model_of_bytes_writes_the_same_after_it_is_exported() {
    let place = trained();
    place.run(&["export", "runs/small", "mine"]).done();
    assert!(!place.path("mine/tokenizer.json").exists());
    let write = |from| place.run(&["sample", from, "--prompt", "the quick", "--tokens", "5"]).done().stdout();
    assert_eq!(write("mine"), write("runs/small"));
}
