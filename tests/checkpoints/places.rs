//! Where a checkpoint may be written, what may be removed, and what does not change.

use pipewright::checkpoint::{Draft, TensorInfo, named_step, remove, tidy};
use pipewright::stages::optimizer::{Sgd, StateFormat};

use super::*;

/// All files under a folder with their contents, and all folders.
fn everything(folder: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.append(&mut everything(&path));
            found.insert(path, None);
        } else {
            found.insert(path.clone(), Some(fs::read(&path).expect("a file")));
        }
    }
    found
}

fn write(path: PathBuf, text: &str) {
    fs::create_dir_all(path.parent().expect("a parent")).expect("made");
    fs::write(path, text).expect("written");
}

/// What is in a place already: its name, and how to make it.
type Standing = (&'static str, fn(&Path));

const NOT_OURS: [Standing; 6] = [
    ("is not a checkpoint: it holds `notes.txt`", |place| {
        write(place.join("notes.txt"), "years of work");
    }),
    ("is not a checkpoint: it holds `config.json`", |place| {
        for name in ["state.json", "model.safetensors", "config.json"] {
            write(place.join(name), "{}");
        }
    }),
    ("is not a checkpoint: it has no `state.json`", |place| {
        write(place.join("model.safetensors"), "somebody else's");
    }),
    ("is not a checkpoint: it holds `state.json`", |place| {
        write(place.join("state.json/precious"), "a folder of that name");
    }),
    ("is not a checkpoint: its `state.json` is not one of a checkpoint", |place| {
        write(place.join("state.json"), "{\"step\": 7, \"of\": \"another program\"}");
        write(place.join("model.safetensors"), "somebody else's");
    }),
    ("is not a folder", |place| write(place.to_owned(), "a file")),
];

#[test]
fn what_is_not_a_checkpoint_is_neither_replaced_nor_removed() {
    let recipe = recipe(1, false, 2);
    let mut pipeline = recipe.pipeline(2, "gpipe");
    for (problem, put) in NOT_OURS {
        let folder = tempfile::tempdir().expect("a folder");
        let place = folder.path().join("precious");
        put(&place);
        let before = everything(folder.path());
        for error in [
            pipeline.save(&place).expect_err("it must be refused"),
            remove(&place).expect_err("it must be refused"),
        ] {
            let expected = format!("{} {problem}; it is left as it is", place.display());
            assert!(error.to_string().starts_with(&expected), "{error}");
            assert_eq!(everything(folder.path()), before, "{problem}");
        }
    }
    pipeline.step().expect("it still trains");
}

#[test]
fn what_stands_beside_a_checkpoint_is_touched_only_when_it_is_ours() {
    let recipe = recipe(1, false, 2);
    for hidden in [".step-2.old", ".step-2.partial"] {
        let (folder, place) = saved(&recipe);
        write(folder.path().join(hidden).join("notes.txt"), "years of work");
        let before = everything(folder.path());
        let mut pipeline = recipe.pipeline(1, "gpipe");
        for error in [
            pipeline.save(&place).expect_err("it must be refused"),
            remove(&place).expect_err("it must be refused"),
        ] {
            has(&error, &[hidden]);
        }
        assert_eq!(everything(folder.path()), before);
        tidy(folder.path()).expect("what is not ours is no obstacle");
        assert_eq!(everything(folder.path()), before);
    }
}

#[test]
fn a_place_without_a_name_is_refused() {
    let mut pipeline = recipe(1, false, 2).pipeline(1, "gpipe");
    for place in ["/", ".."] {
        let error = pipeline.save(place).expect_err("it must be refused");
        assert!(matches!(error, Error::Checkpoint(_)));
        assert_eq!(
            error.to_string(),
            format!(
                "{place} names no folder of its own; it is left as it is: name another folder for the \
                 checkpoint, or move this one away"
            )
        );
    }
}

#[cfg(unix)]
#[test]
fn a_symbolic_link_is_not_followed() {
    let recipe = recipe(1, false, 2);
    let (folder, place) = saved(&recipe);
    let link = folder.path().join("latest");
    std::os::unix::fs::symlink(&place, &link).expect("made");
    let before = everything(folder.path());
    let error = recipe.pipeline(1, "gpipe").save(&link).expect_err("it must be refused");
    has(&error, &["latest is not a folder"]);
    remove(&link).expect_err("it must be refused");
    assert_eq!(everything(folder.path()), before);
}

#[test]
fn an_empty_folder_and_a_folder_that_is_not_there_yet_take_a_checkpoint() {
    let recipe = recipe(1, false, 2);
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir(folder.path().join("empty")).expect("made");
    let mut pipeline = recipe.pipeline(1, "gpipe");
    for name in ["empty", "new/deeper/place"] {
        let place = folder.path().join(name);
        pipeline.save(&place).expect("it is saved");
        pipeline.load(&place).expect("it loads");
    }
}

#[test]
fn a_removal_that_was_killed_leaves_no_half_checkpoint_in_its_place() {
    let recipe = recipe(1, false, 2);
    let (folder, place) = saved(&recipe);
    // Files cannot be removed from a folder all at once, so the folder is renamed first. If the new name is
    // taken by something that is not ours, nothing is removed.
    write(folder.path().join(".step-2.partial"), "in the way");
    remove(&place).expect_err("it must be refused");
    recipe.pipeline(1, "gpipe").load(&place).expect("it is whole");
    fs::remove_file(folder.path().join(".step-2.partial")).expect("removed");
    // The process was killed in between. What is left is hidden and no checkpoint; tidying the folder removes
    // it.
    fs::rename(&place, folder.path().join(".step-2.partial")).expect("renamed");
    fs::remove_file(folder.path().join(".step-2.partial/state.json")).expect("removed");
    tidy(folder.path()).expect("it is tidied");
    assert!(everything(folder.path()).is_empty());
    remove(&place).expect("there is nothing to do");
}

#[test]
fn tidying_puts_back_a_checkpoint_that_was_about_to_be_replaced() {
    let recipe = recipe(1, false, 2);
    let (folder, place) = saved(&recipe);
    let before = everything(folder.path());
    let aside = folder.path().join(".step-2.old");
    fs::rename(&place, &aside).expect("renamed");
    tidy(folder.path()).expect("it is tidied");
    assert_eq!(everything(folder.path()), before);
    // If there is a checkpoint at its place, tidying removes what was set aside: a whole checkpoint, or half
    // of one.
    for name in ["state.json", "model.safetensors"] {
        write(aside.join(name), "half");
        tidy(folder.path()).expect("it is tidied");
        assert_eq!(everything(folder.path()), before);
    }
    write(aside.join("model.safetensors"), "half");
    recipe.pipeline(1, "gpipe").save(&place).expect("half of one is no obstacle");
}

#[test]
fn a_step_in_the_folders_name_has_to_be_that_of_the_checkpoint() {
    assert_eq!(named_step(Path::new("a/step-00000100")), Some(100));
    assert_eq!(named_step(Path::new("a/step-100")), None);
    let recipe = recipe(1, false, 2);
    let (folder, place) = saved(&recipe);
    let wrong = folder.path().join("step-00000100");
    let said = "the folder's name says step 100, the checkpoint is of step";
    has(&recipe.pipeline(1, "gpipe").save(&wrong).expect_err("step 0"), &[said]);
    fs::rename(&place, &wrong).expect("renamed");
    let message = refusal(&recipe, &wrong);
    assert!(message.ends_with(&format!("{said} 2")), "{message}");
    fs::rename(&wrong, folder.path().join("step-00000002")).expect("renamed");
    Checkpoint::open(&folder.path().join("step-00000002")).expect("step 2");
}

#[test]
fn a_checkpoint_that_lacks_a_tensor_is_not_put_in_its_place() {
    let folder = tempfile::tempdir().expect("a folder");
    let tensors = [TensorInfo {
        is_trained: true,
        is_elsewhere: false,
        format: StateFormat::F32,
        name: "weight".to_owned(),
        dims: vec![2, 3],
        fused: Vec::new(),
    }];
    let draft = Draft::create(&folder.path().join("new"), &tensors, &Sgd::default()).expect("laid out");
    let error = draft.finish(1, "", None, Vec::new()).expect_err("no rank has written it");
    has(&error, &["no rank has written `weight`"]);
    drop(draft);
    assert!(everything(folder.path()).is_empty());
}

#[test]
fn a_damaged_checkpoint_may_be_replaced() {
    let recipe = recipe(1, false, 2);
    let (_folder, place) = saved(&recipe);
    let state = place.join("state.json");
    let text = fs::read_to_string(&state).expect("it is there");
    fs::write(&state, text.replacen("\"step\": 2", "\"step\": 3", 1)).expect("written");
    refusal(&recipe, &place);
    let mut pipeline = recipe.pipeline(1, "gpipe");
    pipeline.save(&place).expect("it is ours");
    pipeline.load(&place).expect("whole");
}

#[test]
fn two_programs_that_save_at_one_place_do_not_write_into_one_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("last");
    let create = || Draft::create(&place, &[], &Sgd::default());
    let first = create().expect("nothing is there");
    let before = everything(folder.path());
    let refused = create().expect_err("the first one is not done");
    has(&refused, &[".last.partial is being written: another program saves"]);
    remove(&place).expect("there is nothing to remove");
    tidy(folder.path()).expect("what is being written is no leftover");
    assert_eq!(everything(folder.path()), before);
    first.finish(1, "", None, Vec::new()).expect("it is complete");
    // The first one is done, but not dropped. It must not remove what the second one writes.
    let second = create().expect("the first one is done");
    drop(first);
    second.finish(2, "", None, Vec::new()).expect("it is complete");
    drop(second);
    assert_eq!(Checkpoint::open(&place).expect("it opens").step(), 2);
    assert_eq!(everything(folder.path()).len(), 4, "a folder with three files");
}
