//! Processes that load a checkpoint from folders of their own: all of them load the same one, or none of them
//! changes a weight.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use super::*;

fn small() -> Recipe {
    recipe(3, true, 4)
}

/// A folder for each of two processes. The last bytes of their names differ but are not UTF-8, so both are
/// written alike, as folders of one name on two machines are.
fn folders(parent: &Path) -> [PathBuf; 2] {
    [b"mine-\xfe", b"mine-\xff"].map(|name| parent.join(OsStr::from_bytes(name)))
}

/// Saves a checkpoint at each place, after one step with this learning rate.
fn save(places: &[PathBuf], learning_rate: f64) {
    let builder = small().builder(named("1f1b", 2, 4));
    let rate = pipewright::stages::optimizer::LearningRate::Constant(learning_rate);
    let mut pipeline = builder.learning_rate(rate).launch().expect("it starts");
    pipeline.step().expect("a step");
    for place in places {
        pipeline.save(place).expect("saved");
    }
}

/// What two processes say when each loads from its own folder. Afterwards both have the weights of before,
/// and go on.
fn refused(folders: &[PathBuf; 2]) -> Vec<String> {
    in_processes(2, |world| {
        let folder = &folders[world.process() as usize];
        let builder = small().builder(named("1f1b", 2, 4));
        let mut pipeline: Pipeline<Sequential> = builder.world(world).launch().expect("it starts");
        let before = pipeline.weights_hash().expect("it runs");
        let error = pipeline.load(folder).expect_err("it must be refused");
        assert_eq!(pipeline.weights_hash().expect("it runs"), before);
        pipeline.step().expect("it goes on");
        error.to_string()
    })
}

#[test]
fn checkpoints_of_two_runs_at_one_step_are_not_mixed() {
    let parent = TempDir::new().expect("a folder");
    let folders = folders(parent.path());
    for (folder, learning_rate) in folders.iter().zip([0.01, 0.02]) {
        save(std::slice::from_ref(folder), learning_rate);
    }
    for said in refused(&folders) {
        has(
            &said,
            &[
                "is not one checkpoint for all processes: for process 0 it is of step 1 (checksum ",
                "for process 1 of step 1 (",
            ],
        );
    }
}

#[test]
fn what_one_process_would_read_is_verified_before_a_weight_of_any_changes() {
    let parent = TempDir::new().expect("a folder");
    let folders = folders(parent.path());
    save(&folders, 0.01);
    // The last tensor's numbers. Process 1 has the last layer.
    let file = folders[1].join("model.safetensors");
    let mut bytes = fs::read(&file).expect("it is there");
    let tensors = safetensors::SafeTensors::deserialize(&bytes).expect("it is whole");
    let numbers = tensors.tensor("ln_f.weight").expect("it has it").data().as_ptr() as usize;
    let at = numbers - bytes.as_ptr() as usize;
    bytes[at + 2] ^= 1;
    fs::write(&file, bytes).expect("written");
    let [first, second] = refused(&folders).try_into().expect("two");
    has(&second, &["not a whole file: `ln_f.weight` has the checksum"]);
    assert_eq!(first, format!("process 1: {second}"));
}
