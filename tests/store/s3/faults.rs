//! A store that is busy, cut or slow for a while, and mistakes.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::mpsc::channel;
use std::time::Duration;

use super::*;
use pipewright::run::Event;

/// The most time that one side of a test waits for the other.
const PATIENCE: Duration = Duration::from_secs(15);

/// Faults again and again, of all kinds.
fn often(asked: &Asked) -> Fate {
    match asked.number {
        number if number % 4 == 1 => Fate::Answer(503),
        number if number % 7 == 2 => Fate::CutRequest,
        number if number % 9 == 4 => Fate::CutAnswer,
        _ => Fate::Pass,
    }
}

#[test]
fn a_run_whose_store_fails_again_and_again_has_all_copies_in_the_end() {
    let Some(bucket) = bucket() else { return };
    let (place, proxy) = (Place::new(), Proxy::before(&bucket.server));
    let store = through(&proxy, &bucket, 10);
    proxy.fail(often);
    let run = place.run(&store).steps(4).keep(9);
    run.train(&mut pipeline()).expect("it trains, and all is copied");
    assert!(proxy.asked().len() > 20);
    let (step, files) = fetched(&store).expect("it is whole, also through faults");
    assert!(step == 4 && files == contents(&place.dir().checkpoint(4)));
    proxy.heal();
    assert_eq!(store.names().expect("listed"), ["step-00000002.json", "step-00000004.json"]);
}

#[test]
fn steps_do_not_wait_for_a_slow_store_and_what_is_being_copied_stays() {
    let Some(bucket) = bucket() else { return };
    let (place, proxy) = (Place::new(), Proxy::before(&bucket.server));
    let store = through(&proxy, &bucket, 0);
    let (let_go, held) = channel::<()>();
    let (begins, begun) = channel::<()>();
    let mut held = Some(held);
    // The first object is held until step 9 is done, or for long, if that waits for it.
    proxy.fail(move |asked| {
        if asked.method == "PUT"
            && let Some(held) = held.take()
        {
            begins.send(()).expect("the run waits for it");
            let _ = held.recv_timeout(PATIENCE);
        }
        Fate::Pass
    });
    let told = Rc::new(RefCell::new(Vec::new()));
    let (heard, dir) = (Rc::clone(&told), place.dir());
    let run = place.run(&store).steps(10).keep(1).on(move |event| match event {
        Event::Checkpoint { step: 2, .. } => begun.recv_timeout(PATIENCE).expect("the copy begins"),
        Event::Step(report) if report.step == 9 => {
            heard.borrow_mut().push("step 9".to_owned());
            assert!(dir.checkpoint(2).exists(), "it is being copied");
            let_go.send(()).expect("it is held");
        }
        Event::Copied { step, .. } => heard.borrow_mut().push(format!("copied {step}")),
        Event::NotCopied { error, .. } => heard.borrow_mut().push(error.to_string()),
        _ => {}
    });
    run.train(&mut pipeline()).expect("it trains");
    let told = told.borrow();
    // Those between were removed by the run before it was their turn. The newest good one was kept.
    assert_eq!(told[..2], ["step 9", "copied 2"], "{told:?}");
    assert_eq!(told.last().map(String::as_str), Some("copied 10"), "{told:?}");
    assert_eq!(fetched(&store).expect("it is whole").0, 10);
}

#[test]
fn a_store_that_comes_back_gets_what_it_missed() {
    let Some(bucket) = bucket() else { return };
    let (place, proxy) = (Place::new(), Proxy::before(&bucket.server));
    let store = through(&proxy, &bucket, 0);
    let told = Rc::new(RefCell::new(Vec::new()));
    let (heard, switch) = (Rc::clone(&told), proxy.clone());
    let run = place.run(&store).steps(6).keep(9).on(move |event| match event {
        // It begins, and the first request for a copy fails.
        Event::Step(report) if report.step == 0 => {
            switch.fail(|asked| if asked.number == 0 { Fate::Answer(503) } else { Fate::Pass });
        }
        Event::NotCopied { step, .. } => heard.borrow_mut().push(format!("not {step}")),
        Event::Copied { step, .. } => heard.borrow_mut().push(format!("copied {step}")),
        _ => {}
    });
    run.train(&mut pipeline()).expect("it trains, and all is copied");
    let mut told = told.borrow().clone();
    assert_eq!(told[0], "not 2", "{told:?}");
    told.sort();
    assert_eq!(told, ["copied 2", "copied 4", "copied 6", "not 2"]);
}

#[test]
fn a_run_whose_last_checkpoint_is_not_in_the_store_fails_and_says_which() {
    let Some(bucket) = bucket() else { return };
    let (place, proxy) = (Place::new(), Proxy::before(&bucket.server));
    let (store, switch) = (through(&proxy, &bucket, 0), proxy.clone());
    let run = place.run(&store).steps(4).on(move |event| match event {
        Event::Step(report) if report.step == 2 => switch.fail(|_| Fate::CutRequest),
        _ => {}
    });
    let error = store_error(run.train(&mut pipeline()).expect_err("it is not there"));
    let StoreError::NotCopied { steps, source, .. } = &error else { panic!("{error}") };
    assert!(steps.contains(&4), "{error}");
    let Error::Store(cause) = source.as_ref() else { panic!("{source}") };
    assert!(matches!(**cause, StoreError::Cut { .. }), "{cause}");
    has(&error.to_string(), &["step-00000004", "look at the network"]);
    assert!(place.dir().checkpoint(4).exists());
}

#[test]
fn each_mistake_has_a_message_with_the_place_and_what_to_do() {
    let Some(bucket) = bucket() else { return };
    let proxy = Proxy::before(&bucket.server);
    let error = |store: &Store| store_error(store.names().map(drop).expect_err("it fails"));
    let store = through(&proxy, &bucket, 1);
    for status in [503, 500, 429] {
        proxy.fail(move |_| Fate::Answer(status));
        let told = error(&store);
        assert!(matches!(&told, StoreError::Busy { status: known, .. } if *known == status), "{told}");
        assert_eq!(proxy.asked().len(), 2, "it was asked again");
        has(&told.to_string(), &[&bucket.url, "try it later", "The proxy makes a fault."]);
    }
    for status in [401, 403] {
        proxy.fail(move |_| Fate::Answer(status));
        let told = error(&store);
        assert!(matches!(&told, StoreError::Refused { .. }), "{told}");
        assert_eq!(proxy.asked().len(), 1, "asking again does not help");
        has(&told.to_string(), &[&bucket.url, "AWS_ACCESS_KEY_ID"]);
    }
    proxy.heal();
    let other =
        Bucket { url: "s3://no-such-bucket/a".to_owned(), server: String::new(), name: String::new() };
    let told = error(&through(&proxy, &other, 0));
    assert!(matches!(&told, StoreError::Missing { .. }), "{told}");
    has(&told.to_string(), &["s3://no-such-bucket/a", "the name of the bucket", "NoSuchBucket"]);
    let mut settings = settings(&proxy, 0);
    settings.keys[0].1 = "http://127.0.0.1:1".to_owned();
    let told = error(&Store::with(&bucket.url, &settings).expect("it is a place"));
    assert!(matches!(&told, StoreError::Unreachable { .. }), "{told}");
    has(&told.to_string(), &[&bucket.url, "AWS_ENDPOINT_URL"]);
    settings.keys[0].0 = "aws_endpoint_utl".to_owned();
    let told = store_error(Store::with(&bucket.url, &settings).map(drop).expect_err("no such key"));
    assert!(matches!(&told, StoreError::Settings { .. }), "{told}");
}
