//! Copies that are damaged: nothing of them is used, and the message says which object, and what to do.

use super::*;

/// Two checkpoints, copied. Returns the store and where the object of this name of the newer one is.
fn two(place: &Place, name: &str) -> (Store, PathBuf) {
    let store = place.copies();
    for steps in [1, 2] {
        copy_to(&place.checkpoint((4, 1), steps), &store).expect("copied");
    }
    let newer = |object: &pipewright::store::Object| {
        object.name.starts_with("step-00000002") && object.name.ends_with(name)
    };
    let object = store.list().expect("listed").into_iter().find(newer).expect("it is there");
    (store, place.at("copies").join(object.name))
}

#[test]
fn a_changed_byte_of_any_object_is_found() {
    for name in ["model.safetensors", "optimizer.safetensors", "state.json"] {
        let place = Place::new();
        let (store, path) = two(&place, name);
        let mut bytes = fs::read(&path).expect("it is there");
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        fs::write(&path, bytes).expect("written");
        let error = store_error(fetched(&store).expect_err("it is damaged"));
        let StoreError::Damaged { url, expected, found, .. } = &error else { panic!("{error}") };
        assert!(url.ends_with(name) && expected != found, "{error}");
        has(&error.to_string(), &["remove the object", "step-00000002.json", "after 1 steps"]);
        // What the message says.
        store.remove("step-00000002.json").expect("removed");
        assert_eq!(fetched(&store).expect("the older one is whole").0, 1);
    }
}

#[test]
fn an_object_that_is_shorter_or_missing_is_named() {
    let place = Place::new();
    let (store, path) = two(&place, "model.safetensors");
    let bytes = fs::read(&path).expect("it is there");
    fs::write(&path, &bytes[..bytes.len() - 1]).expect("written");
    let error = store_error(fetched(&store).expect_err("it is shorter"));
    let StoreError::Length { url, expected, found } = &error else { panic!("{error}") };
    assert!(url.ends_with("model.safetensors") && *expected == *found + 1, "{error}");
    fs::remove_file(&path).expect("removed");
    let error = store_error(fetched(&store).expect_err("it is missing"));
    assert!(
        matches!(&error, StoreError::Missing { url, .. } if url.ends_with("model.safetensors")),
        "{error}"
    );
    has(&error.to_string(), &["step-00000002.json names it"]);
}

#[test]
fn a_damaged_manifest_is_refused_and_the_older_checkpoint_is_named() {
    let place = Place::new();
    let (store, path) = two(&place, ".json");
    assert!(path.ends_with("step-00000002.json"));
    let whole = fs::read(&path).expect("it is there");
    let changed = String::from_utf8(whole.clone()).expect("it is text").replace("\"step\": 2", "\"step\": 3");
    for damaged in [&whole[..whole.len() / 2], b"{}", b"", changed.as_bytes()] {
        fs::write(&path, damaged).expect("written");
        let error = fetched(&store).expect_err("it is damaged").to_string();
        has(&error, &["step-00000002.json: not a whole file", "continue from the checkpoint after 1 steps"]);
    }
    // The next copy of the same checkpoint mends it.
    assert!(copy_to(&place.at("seed-1").join("step-00000002"), &store).expect("copied"));
    assert_eq!(fetched(&store).expect("it is whole").0, 2);
}

#[test]
fn an_empty_store_has_no_checkpoint() {
    let place = Place::new();
    assert!(Stored::newest(&place.copies()).expect("asked").is_none());
}
