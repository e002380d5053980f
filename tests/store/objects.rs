//! Objects of a folder, and places that no store can have.

use super::*;

#[test]
fn the_files_of_a_folder_are_objects_that_are_whole_or_not_there() {
    let place = Place::new();
    let store = place.copies();
    assert_eq!(store.list().expect("an empty store"), []);
    assert_eq!(store.read("a/b").expect("asked"), None);
    store.put("a/b", b"old").expect("written");
    store.put("a/b", b"new").expect("replaced");
    store.put("c", b"").expect("written");
    // As a killed process leaves it.
    fs::write(place.at("copies").join(".d.partial"), "half").expect("written");
    let names = |objects: Vec<pipewright::store::Object>| {
        objects.into_iter().map(|object| (object.name, object.bytes)).collect::<Vec<_>>()
    };
    let all = names(store.list().expect("listed"));
    assert_eq!(all, [("a/b".to_owned(), 3), ("c".to_owned(), 0)]);
    assert_eq!(store.names().expect("listed"), ["c"]);
    assert_eq!(store.read("a/b").expect("asked").as_deref(), Some(&b"new"[..]));
    store.remove("a/b").expect("removed");
    store.remove("a/b").expect("it is not there already");
    assert_eq!(store.find("a/b").expect("asked"), None);
    let url = format!("file://{}", place.at("copies").display());
    assert_eq!(Store::open(&url).expect("the same folder").names().expect("listed"), ["c"]);
}

#[test]
fn a_place_that_no_store_can_have_is_refused_with_what_to_write() {
    for (place, problem) in [
        ("", "is empty"),
        ("ftp://host/a", "a scheme that this program does not know: write s3://BUCKET/PATH"),
        ("s3:///a", "names no bucket"),
        ("gs://bucket/a/../b", "a part of its path"),
        ("file://host/a", "does not begin with file:///"),
    ] {
        let error = store_error(Store::open(place).expect_err("it is no place"));
        assert!(matches!(error, StoreError::Place { .. }), "{error}");
        has(&error.to_string(), &[problem]);
    }
}

#[cfg(not(feature = "cloud"))]
#[test]
fn without_the_feature_the_cloud_is_refused_with_the_feature_s_name() {
    for place in ["s3://bucket/a", "gs://bucket/a", "az://container/a"] {
        for refused in [Store::open(place).map(drop), pipewright::store::check(place)] {
            let error = store_error(refused.expect_err("it has no cloud"));
            assert!(matches!(&error, StoreError::NoFeature { place: named } if named == place), "{error}");
            has(&error.to_string(), &["cargo build --release --features cloud"]);
        }
    }
}
