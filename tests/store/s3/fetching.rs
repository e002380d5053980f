//! Files that are fetched once, and again when they have changed.

use super::*;
use pipewright::store::fetch;

/// Numbers that repeat only after long.
fn bytes(count: usize, seed: u32) -> Vec<u8> {
    let number = |at: usize| (at as u32).wrapping_mul(2_654_435_761).wrapping_add(seed).to_le_bytes()[3];
    (0..count).map(number).collect()
}

#[test]
fn an_object_is_fetched_once_and_again_when_it_has_changed() {
    let Some(bucket) = bucket() else { return };
    let (place, proxy) = (Place::new(), Proxy::before(&bucket.server));
    let store = through(&proxy, &bucket, 0);
    // More than two parts.
    let first = bytes(20 << 20, 1);
    store.put("tokens.bin", &first).expect("written");
    store.put("tokens.bin.json", b"{}").expect("written");
    let (url, cache) = (store.url_of("tokens.bin"), place.at("cache"));
    let beside = ["tokens.idx".to_owned(), "tokens.bin.json".to_owned()];
    let mut told = Vec::new();
    let mut bring = || {
        let settings = settings(&proxy, 0);
        fetch(&url, &settings, &beside, &cache, &mut |fetching| told.push((fetching.bytes, fetching.all)))
    };
    let path = bring().expect("fetched");
    assert!(fs::read(&path).expect("it is there") == first && path.ends_with("tokens.bin/tokens.bin"));
    assert_eq!(fs::read(path.with_file_name("tokens.bin.json")).expect("it is there"), b"{}");
    proxy.heal();
    assert_eq!(bring().expect("it is here"), path);
    assert!(proxy.asked().iter().all(|asked| asked.method == "HEAD"), "{:?}", proxy.asked());
    // The same length, other contents. The description has not changed, so it is not fetched again.
    let second = bytes(20 << 20, 2);
    store.put("tokens.bin", &second).expect("written");
    proxy.heal();
    let newer = bring().expect("fetched");
    assert!(newer != path && fs::read(&newer).expect("it is there") == second);
    assert!(fs::read(&path).expect("a run may still use it") == first);
    let read = |name: &str| proxy.asked().iter().filter(|asked| asked.path.ends_with(name)).count();
    assert_eq!([read("tokens.bin"), read("tokens.bin.json")], [1 + 3, 1]);
    let all = first.len() as u64 + 2;
    assert_eq!(told.first().map(|told| told.1), Some(all));
    assert!(told.contains(&(all, all)) && told.is_sorted_by_key(|told| told.1), "{told:?}");
}

#[test]
fn a_prefix_is_a_folder_of_all_objects_below_it() {
    let Some(bucket) = bucket() else { return };
    let (place, proxy) = (Place::new(), Proxy::before(&bucket.server));
    let store = through(&proxy, &bucket, 0);
    for (name, text) in [("texts/a.txt", "one"), ("texts/more/b c.txt", "two"), ("textsandmore", "three")] {
        store.put(name, text.as_bytes()).expect("written");
    }
    // Consoles of stores make such an object for a folder.
    store.put("texts/empty", b"").expect("written");
    let cache = place.at("cache");
    for ending in ["", "/"] {
        let url = store.url_of("texts") + ending;
        let folder = fetch(&url, &settings(&proxy, 0), &[], &cache, &mut |_| ()).expect("fetched");
        assert!(folder.ends_with("texts"));
        assert_eq!(fs::read(folder.join("more/b c.txt")).expect("it is there"), b"two");
        assert_eq!(fs::read(folder.join("a.txt")).expect("it is there"), b"one");
        assert_eq!(fs::read_dir(&folder).expect("it is there").count(), 2);
    }
    let url = store.url_of("nothing");
    let error = fetch(&url, &settings(&proxy, 0), &[], &cache, &mut |_| ()).expect_err("it is not there");
    assert!(matches!(store_error(error), StoreError::Missing { url: named, .. } if named == url));
}

#[test]
fn a_fetch_that_is_cut_anywhere_leaves_no_file() {
    let Some(bucket) = bucket() else { return };
    let (place, proxy) = (Place::new(), Proxy::before(&bucket.server));
    let store = through(&proxy, &bucket, 0);
    let all = bytes(20 << 20, 3);
    store.put("tokens.bin", &all).expect("written");
    let url = store.url_of("tokens.bin");
    for end in [Fate::CutRequest, Fate::CutAnswer, Fate::Answer(503)] {
        for passed in 0.. {
            let cache = place.at(&format!("{end:?}-{passed}"));
            proxy.fail(move |asked| if asked.number < passed { Fate::Pass } else { end });
            let bring = || fetch(&url, &settings(&proxy, 0), &[], &cache, &mut |_| ());
            match bring() {
                Ok(path) => {
                    assert!(fs::read(path).expect("it is there") == all && passed == 1 + 3, "{passed}");
                    break;
                }
                Err(error) => drop(store_error(error)),
            }
            let left = fs::read_dir(cache.join("objects")).into_iter().flatten().flatten();
            let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
            assert!(left.iter().all(|name| name.to_string_lossy().ends_with(".lock")), "{left:?}");
            proxy.heal();
            assert!(fs::read(bring().expect("fetched")).expect("it is there") == all);
        }
    }
}

#[test]
fn an_object_that_is_replaced_while_it_is_read_is_not_mixed() {
    let Some(bucket) = bucket() else { return };
    let (place, proxy) = (Place::new(), Proxy::before(&bucket.server));
    let (store, other) = (through(&proxy, &bucket, 0), Proxy::before(&bucket.server));
    store.put("tokens.bin", &bytes(40 << 20, 4)).expect("written");
    let aside = through(&other, &bucket, 0);
    let replacement = bytes(40 << 20, 5);
    // After the look and the first part.
    proxy.fail(move |asked| {
        if asked.number == 2 {
            aside.put("tokens.bin", &replacement).expect("written");
        }
        Fate::Pass
    });
    let url = store.url_of("tokens.bin");
    let error = fetch(&url, &settings(&proxy, 0), &[], &place.at("cache"), &mut |_| ());
    let error = store_error(error.expect_err("two halves are no whole"));
    assert!(matches!(&error, StoreError::Replaced { url: named } if *named == url), "{error}");
}
