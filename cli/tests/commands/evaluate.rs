use pipewright::stages::loss::Metric;

use super::*;

fn evaluated(place: &Place, args: &[&str]) -> serde_json::Value {
    let run = place.run(&[&["evaluate"], args, &["--format", "json"]].concat()).done();
    serde_json::from_str(&run.stdout()).expect("one object")
}

fn trained(sets: &[&str]) -> Place {
    let place = Place::new();
    place.run_with(&["train", "my.toml"], sets).done();
    place
}

/// The validation loss after the last step, as training has told it.
fn told(place: &Place) -> f64 {
    let lines = place.lines("runs/small");
    lines.last().unwrap()["validation_loss"].as_f64().unwrap()
}

#[test]
fn the_loss_is_that_of_the_validation_in_training() {
    let place = trained(&[]);
    let expected = told(&place);
    for args in [
        &["runs/small"][..],
        &["runs/small/checkpoints/step-00000006"],
        &["runs/small", "--ranks", "3", "--threads", "1"],
    ] {
        let found = evaluated(&place, args);
        assert_eq!(found["loss"], expected, "{args:?}");
        assert_eq!(found["perplexity"], expected.exp());
        assert!(found["targets"].as_f64().unwrap() > 0.0 && found["accuracy"].is_f64());
    }
    let text = place.run(&["evaluate", "runs/small"]).done().stdout();
    has(&text, &["the last 180 for validation\n"]);
    has(&text, &[&format!("loss {expected:.4}")]);
    let perplexity = Metric::PERPLEXITY.of(expected, 1.0).to_string();
    has(&text, &[&perplexity]);
    let oldest = format!("runs/small/checkpoints/{}", place.checkpoints("runs/small")[0]);
    let before = evaluated(&place, &[&oldest]);
    assert!(before["loss"].as_f64().unwrap() > expected, "{before}");
}

#[test]
fn data_of_its_own_is_validated_on_and_nothing_is_set_aside() {
    let set = "data.validation_path=other.txt";
    let place = Place::new();
    place.write("other.txt", "zebras quiz five dogs. ".repeat(9));
    let text = place.run(&["train", "my.toml", "--set", set]).done().stdout();
    let summary = "text.txt`: 1800 bytes; for validation `";
    has(&text, &[summary, "other.txt`: 207 bytes"]);
    assert_eq!(evaluated(&place, &["runs/small"])["loss"], told(&place));
    // A run that was trained otherwise, on the same other data.
    let place = trained(&[]);
    place.write("other.txt", "zebras quiz five dogs. ".repeat(9));
    let found = evaluated(&place, &["runs/small", "--set", set]);
    assert_ne!(found["loss"], told(&place));
    let all = evaluated(&place, &["runs/small", "--set", set, "--set", "train.validation_micro_batches=1"]);
    assert!(all["targets"].as_f64().unwrap() < found["targets"].as_f64().unwrap());
}

#[test]
fn a_folder_of_hugging_face_is_evaluated_on_any_data() {
    let place = Place::new();
    let model = llama();
    let tokens: Vec<u8> = (0..400_u16).flat_map(|index| (index * 7 % 96).to_le_bytes()).collect();
    place.write("tokens.bin", tokens);
    let model = model.to_str().unwrap();
    let sets = set(&["data.kind=tokens", "data.seq=12", "data.validation_path=tokens.bin"]);
    let args = [&[model], &sets[..]].concat();
    let loss = evaluated(&place, &args)["loss"].as_f64().unwrap();
    // Of random weights, about as much as of a guess.
    assert!((loss - 96_f64.ln()).abs() < 0.5, "{loss}");
    assert_eq!(evaluated(&place, &[&args[..], &["--ranks", "2"]].concat())["loss"], loss);
    let with_adapters = |ranks| {
        let path = format!("lora.path={model}/lora");
        let more = ["--set", &path, "--ranks", ranks];
        evaluated(&place, &[&args[..], &more].concat())["loss"].as_f64().unwrap()
    };
    assert_ne!(with_adapters("1"), loss);
    assert_eq!(with_adapters("1"), with_adapters("2"));
    let new = evaluated(&place, &[&args[..], &["--set", "lora.rank=2"]].concat());
    assert_eq!(new["loss"], loss, "new adapters change nothing");
}

#[test]
fn what_cannot_be_evaluated_is_refused() {
    let place = trained(&["data.validation=0"]);
    for (args, part) in [
        (&["nowhere"][..], "nowhere is neither a checkpoint, nor a run that has one, nor a model's folder"),
        (
            &["runs/small"],
            "data.validation: nothing is set aside: choose a share above 0, or name other data in \
                           data.validation_path",
        ),
        (&["runs/small", "--set", "data.validation_path=missing.txt"], "missing.txt"),
        (&["runs/small", "--set", "data.validation=0.5", "--ranks", "99"], "ranks"),
        (&["runs/small", "--set", "model.kid=1"], "unknown key model.kid"),
    ] {
        has(&place.run(&[&["evaluate"], args].concat()).refused(), &[part]);
    }
}

/// 40 images with one color, of `side` x `side` pixels, and their labels.
pub(super) fn images(place: &Place, side: u32) {
    let [mut images, mut labels] = [vec![0, 0, 8, 3], vec![0, 0, 8, 1]];
    for size in [40, side, side] {
        images.extend(size.to_be_bytes());
    }
    labels.extend(40_u32.to_be_bytes());
    images.extend((0..40 * side * side).map(|pixel| (pixel * 7 % 251) as u8));
    labels.extend((0..40_u32).map(|row| (row % 3) as u8));
    place.write("images.idx", images);
    place.write("labels.idx", labels);
}

#[test]
fn a_model_of_any_kind_is_evaluated_as_a_run_and_as_a_folder() {
    const IMAGES: &str = "[data]\nkind = 'idx'\npath = 'images.idx'\nlabels = 'labels.idx'\nvalidation = 8\n";
    const TEXT: &str = "[data]\npath = 'text.txt'\nseq = 16\n";
    const LAYERS: &str =
        "image = [8, 8, 1]\nstack = [{ kind = 'flatten' }, { kind = 'linear', inputs = 64, outputs = 3 }]";
    const WORDS: &str = "stack = [{ kind = 'embedding', vocab = 256, context = 16, dim = 8 }, \
                         { kind = 'linear', inputs = 8, outputs = 256 }]";
    let small = "dim = 16\nlayers = 1\nheads = 2";
    let kinds = [
        ("mlp", "sizes = [64, 8, 3]", IMAGES),
        ("cnn", "channels = '4,8'\nimage = [8, 8, 1]\nclasses = 3", IMAGES),
        ("resnet", "blocks = '1,1'\nwidth = 4\nimage = [8, 8, 1]\nclasses = 3", IMAGES),
        ("stack", LAYERS, IMAGES),
        ("stack", WORDS, TEXT),
        ("gpt", small, TEXT),
        ("llama", small, TEXT),
        ("mixtral", small, TEXT),
    ];
    let place = Place::new();
    images(&place, 8);
    for (kind, model, data) in kinds {
        let config = format!(
            "[model]\nkind = '{kind}'\n{model}\n{data}[pipeline]\nmicro_batches = 2\nmicro_batch_size = 2\n\
             [train]\nsteps = 2\nvalidate_every = 1\n"
        );
        place.write("one.toml", config);
        place.run(&["train", "one.toml", "--run-dir", "runs/small"]).done();
        let expected = told(&place);
        assert_eq!(evaluated(&place, &["runs/small"])["loss"], expected, "{kind}");
        assert_eq!(evaluated(&place, &["runs/small", "--ranks", "2"])["loss"], expected, "{kind}");
        place.run(&["export", "runs/small", "mine"]).done();
        let data: Vec<String> =
            data.lines().skip(1).map(|line| format!("data.{}", line.replace(" = ", "="))).collect();
        let sizes = ["pipeline.micro_batch_size=2".to_owned()];
        let sets = data.iter().chain(&sizes).flat_map(|set| ["--set", set]);
        let args: Vec<&str> = ["mine"].into_iter().chain(sets).collect();
        assert_eq!(evaluated(&place, &args)["loss"], expected, "{kind}, exported");
        fs::remove_dir_all(place.path("mine")).unwrap();
        fs::remove_dir_all(place.path("runs")).unwrap();
    }
}
