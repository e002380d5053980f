//! Uploads and downloads that end after every possible request: nobody ever sees a mixture.

use super::*;

/// How a program or a network may end a copy.
const ENDS: [Fate; 3] = [Fate::CutRequest, Fate::CutAnswer, Fate::Answer(503)];

/// The checkpoint of a model with more than 8 MiB of weights, so that these are sent in parts.
const LARGE: usize = 1_500;

/// Copies `newer` over `older`, and ends that after each number of requests. After each end, a reader sees
/// one of the two whole, and the next copy succeeds. Returns how many requests a copy takes.
fn end_everywhere(bucket: &Bucket, older: &Path, newer: &Path) -> usize {
    let steps = [older, newer].map(|folder| Checkpoint::open(folder).expect("it is whole").step());
    let files = [contents(older), contents(newer)];
    let proxy = Proxy::before(&bucket.server);
    let mut requests = 0;
    for (end, kind) in ENDS.into_iter().enumerate() {
        for passed in 0.. {
            let place = Bucket { url: format!("{}/{end}/{passed}", bucket.url), ..bucket_like(bucket) };
            let store = through(&proxy, &place, 0);
            proxy.heal();
            copy_to(older, &store).expect("copied");
            proxy.fail(move |asked| if asked.number < passed { Fate::Pass } else { kind });
            let copied = copy_to(newer, &store);
            let asked = proxy.asked().len();
            proxy.heal();
            let seen = fetched(&store).expect("one of the two is whole");
            let is_newer = seen.0 == steps[1] && seen.1 == files[1];
            assert!(is_newer || (seen.0 == steps[0] && seen.1 == files[0]), "{kind:?} after {passed}");
            if copied.is_ok() {
                assert!(is_newer && asked == passed, "{kind:?} after {passed}");
                requests = passed;
                break;
            }
            // The last request may have been done without an answer.
            assert!(!is_newer || kind == Fate::CutAnswer, "{kind:?} after {passed}");
            copy_to(newer, &store).expect("the next try succeeds");
            let seen = fetched(&store).expect("it is whole");
            assert!(seen.0 == steps[1] && seen.1 == files[1], "{kind:?} after {passed}");
        }
    }
    requests
}

fn bucket_like(bucket: &Bucket) -> Bucket {
    Bucket { server: bucket.server.clone(), name: bucket.name.clone(), url: bucket.url.clone() }
}

#[test]
fn a_copy_that_ends_anywhere_leaves_the_older_checkpoint_or_is_whole() {
    let Some(bucket) = bucket() else { return };
    let place = Place::new();
    let (older, newer) = (place.checkpoint((4, 1), 1), place.checkpoint((LARGE, 1), 2));
    let requests = end_everywhere(&bucket, &older, &newer);
    // Is it there? Twice: begin, parts, end, look. The description, with a look, and the manifest.
    assert_eq!(requests, 1 + (1 + 2 + 2) + (1 + 3 + 2) + 2 + 1);
}

#[test]
fn a_copy_with_other_weights_after_the_same_steps_never_mixes_with_the_earlier_one() {
    let Some(bucket) = bucket() else { return };
    let place = Place::new();
    let (older, newer) = (place.checkpoint((4, 1), 2), place.checkpoint((4, 2), 2));
    end_everywhere(&bucket, &older, &newer);
}

#[test]
fn a_fetch_that_ends_anywhere_leaves_nothing_or_all() {
    let Some(bucket) = bucket() else { return };
    let (place, proxy) = (Place::new(), Proxy::before(&bucket.server));
    let store = through(&proxy, &bucket, 0);
    let folder = place.checkpoint((LARGE, 1), 2);
    copy_to(&folder, &store).expect("copied");
    for end in ENDS {
        for passed in 0.. {
            proxy.fail(move |asked| if asked.number < passed { Fate::Pass } else { end });
            // This looks that nothing is left after a failure.
            match fetched(&store) {
                Err(error) => drop(store_error(error)),
                Ok((step, files)) => {
                    assert!(step == 2 && files == contents(&folder));
                    assert!(passed > 8, "list, manifest, and each object, one of them in parts: {passed}");
                    break;
                }
            }
        }
    }
}

#[test]
fn an_upload_that_fails_leaves_no_parts_in_the_store() {
    let Some(bucket) = bucket() else { return };
    let (place, proxy) = (Place::new(), Proxy::before(&bucket.server));
    let store = through(&proxy, &bucket, 0);
    let folder = place.checkpoint((LARGE, 1), 2);
    let is_part = |asked: &Asked| asked.method == "PUT" && asked.path.contains("partNumber=2");
    let is_end = |asked: &Asked| asked.method == "POST" && asked.path.contains("uploadId");
    let faults: [fn(&Asked) -> bool; 2] = [is_part, is_end];
    for fault in faults {
        proxy.fail(move |asked| if fault(asked) { Fate::Answer(503) } else { Fate::Pass });
        let error = store_error(copy_to(&folder, &store).map(drop).expect_err("a part is missing"));
        let StoreError::Busy { url, status: 503, .. } = &error else { panic!("{error}") };
        assert!(url.ends_with("model.safetensors"), "{error}");
        let uploads = server::ask(&bucket.server, "GET", &format!("/{}?uploads", bucket.name));
        assert!(!uploads.contains("<Upload>"), "{uploads}");
        assert!(Stored::newest(&store).expect("asked").is_none());
    }
}
