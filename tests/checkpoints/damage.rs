//! Every byte of a checkpoint counts. Any change is refused, and the error names the file and the tensor.

use std::sync::LazyLock;

use proptest::prelude::*;

use super::*;

const FILES: [&str; 3] = ["model.safetensors", "optimizer.safetensors", "state.json"];

/// The files of a checkpoint after two steps.
static WHOLE: LazyLock<[Vec<u8>; 3]> = LazyLock::new(|| {
    let (_folder, place) = saved(&recipe(1, false, 2));
    FILES.map(|name| fs::read(place.join(name)).expect("it is there"))
});

/// A copy of that checkpoint in which one file is changed.
fn changed(file: usize, change: impl FnOnce(&mut Vec<u8>)) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("step-2");
    fs::create_dir(&place).expect("made");
    let mut files = WHOLE.clone();
    change(&mut files[file]);
    for (name, bytes) in FILES.iter().zip(files) {
        fs::write(place.join(name), bytes).expect("written");
    }
    (folder, place)
}

/// The error from verifying a whole checkpoint.
fn fault(place: &Path) -> Option<Error> {
    let verified = Checkpoint::open(place).and_then(|checkpoint| checkpoint.verify());
    verified.err()
}

/// Where the numbers of a safetensors file begin.
fn start(bytes: &[u8]) -> usize {
    8 + u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")) as usize
}

#[test]
fn a_whole_checkpoint_is_verified() {
    let (_folder, place) = changed(0, |_| {});
    let verified = Checkpoint::open(&place).expect("it opens").verify().expect("it is whole");
    let (model, optimizer) = (&WHOLE[0], &WHOLE[1]);
    let bytes = model.len() - start(model) + optimizer.len() - start(optimizer);
    assert!(verified.checksums && verified.step == 2);
    assert_eq!(verified.bytes, bytes as u64);
    assert_eq!(verified.tensors[1], 2 * verified.tensors[0]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_flipped_bit_is_found(file in 0_usize..3, place in any::<prop::sample::Index>(), bit in 0_u8..8) {
        let (_folder, folder) = changed(file, |bytes| {
            let at = place.index(bytes.len());
            bytes[at] ^= 1 << bit;
        });
        let fault = fault(&folder);
        prop_assert!(fault.is_some());
        let message = fault.map(|fault| fault.to_string()).unwrap_or_default();
        prop_assert!(message.contains(FILES[file]), "{}", message);
    }
}

#[test]
fn a_flipped_bit_in_any_tensor_names_it_and_changes_no_weight() {
    let recipe = recipe(1, false, 2);
    for (file, tensor) in [(0, "wte.weight"), (1, "ln_f.bias.exp_avg_sq")] {
        let (_folder, place) = changed(file, |bytes| {
            let tensors = SafeTensors::deserialize(bytes).expect("it is whole");
            let data = tensors.tensor(tensor).expect("it has it").data().as_ptr() as usize;
            let at = data - bytes.as_ptr() as usize;
            bytes[at + 5] ^= 1;
        });
        let message = refusal(&recipe, &place);
        let expected = format!("{}: not a whole file: `{tensor}` has the checksum", FILES[file]);
        has(&message, &[&expected]);
    }
}

#[test]
fn a_zeroed_block_anywhere_is_found() {
    for (file, name) in FILES.iter().enumerate() {
        let length = WHOLE[file].len();
        for part in 0..20 {
            let from = part * (length - 64) / 19;
            let (_folder, place) = changed(file, |bytes| bytes[from..from + 64].fill(0));
            if WHOLE[file][from..from + 64].iter().all(|&byte| byte == 0) {
                continue;
            }
            has(&fault(&place).expect("it must be refused"), &[name]);
        }
    }
}

#[test]
fn another_steps_optimizer_is_found() {
    let recipe = recipe(1, false, 2);
    let (_folder, place) = saved(&recipe);
    let mut pipeline = recipe.pipeline(1, "gpipe");
    train(&mut pipeline, 1);
    let other = place.with_file_name("other");
    pipeline.save(&other).expect("it is saved");
    fs::copy(other.join("optimizer.safetensors"), place.join("optimizer.safetensors")).expect("copied");
    has(&refusal(&recipe, &place), &["optimizer.safetensors: not a whole file: `wte.weight.exp_avg`"]);
}

#[test]
fn swapped_offsets_of_two_equal_tensors_are_found() {
    let swap = |bytes: &mut Vec<u8>| {
        let end = start(bytes);
        let mut header: serde_json::Value = serde_json::from_slice(&bytes[8..end]).expect("it is whole");
        let offsets = |name: &str, header: &serde_json::Value| header[name]["data_offsets"].clone();
        let [one, two] = ["ln_f.weight", "ln_f.bias"].map(|name| offsets(name, &header));
        header["ln_f.weight"]["data_offsets"] = two;
        header["ln_f.bias"]["data_offsets"] = one;
        let mut text = serde_json::to_vec(&header).expect("it serialises");
        text.resize(end - 8, b' ');
        bytes[8..end].copy_from_slice(&text);
    };
    let (_folder, place) = changed(0, swap);
    let message = refusal(&recipe(1, false, 2), &place);
    has(&message, &["model.safetensors: not a whole file: the header has the checksum"]);
}

#[test]
fn another_step_in_the_description_is_found() {
    for step in ["140", "18446744073709551615"] {
        let (_folder, place) = changed(2, |bytes| {
            let text = String::from_utf8(bytes.clone()).expect("text");
            *bytes = text.replace("\"step\": 2", &format!("\"step\": {step}")).into_bytes();
        });
        let message = refusal(&recipe(1, false, 2), &place);
        has(&message, &["state.json: not a whole file: the description has the checksum"]);
    }
    let (_folder, place) = changed(2, |bytes| bytes.truncate(bytes.len() - 3));
    let error = fault(&place).expect("it is found");
    assert!(matches!(error, Error::Checkpoint(_)));
    let message = error.to_string();
    assert!(
        message.contains("state.json: not a whole file: EOF while parsing")
            && message.ends_with("; use an earlier checkpoint"),
        "{message}"
    );
}

#[test]
fn a_checkpoint_without_checksums_is_loaded_and_says_that_it_has_none() {
    let recipe = recipe(1, false, 2);
    let (_folder, place) = saved(&recipe);
    forget_checksums(&place);
    let checkpoint = Checkpoint::open(&place).expect("it opens");
    assert!(!checkpoint.has_checksums());
    has(&checkpoint.verify().expect("its lengths are right"), &["has no checksums"]);
    let mut pipeline = recipe.pipeline(2, "gpipe");
    pipeline.load(&place).expect("it loads");
    assert_eq!(trained(&mut pipeline, 1), recipe.plain_hash(3));
}

#[test]
fn a_checkpoint_knows_its_data() {
    let (_folder, place) = saved(&recipe(1, false, 2));
    let checkpoint = Checkpoint::open(&place).expect("it opens");
    let saved: Fingerprint = checkpoint.data().expect("the data is known").clone();
    let elsewhere =
        Fingerprint { name: "`moved.txt`".to_owned(), batches: "fewer rows".to_owned(), ..saved.clone() };
    checkpoint.check_data(&elsewhere).expect("the contents are the same");
    let other = Fingerprint { contents: pipewright::checksum::Checksum::of(b"other data"), ..elsewhere };
    let message = checkpoint.check_data(&other).expect_err("other data").to_string();
    for part in [
        &saved.name,
        &saved.contents.to_string(),
        &other.name,
        &other.contents.to_string(),
        "--allow-other-data",
    ] {
        has(&message, &[part]);
    }
}
