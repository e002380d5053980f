//! Runs that copy their checkpoints to a store.

use std::cell::RefCell;
use std::rc::Rc;

use super::*;
use pipewright::run::Event;

#[test]
fn a_run_goes_on_elsewhere_from_its_copies_with_the_same_weights() {
    let (place, other) = (Place::new(), Place::new());
    let (store, told) = (place.copies(), Rc::new(RefCell::new(Vec::new())));
    let heard = Rc::clone(&told);
    let run = place.run(&store).steps(5).on(move |event| {
        if let Event::Copied { step, url, .. } = event {
            heard.borrow_mut().push((*step, (*url).to_owned()));
        }
    });
    run.train(&mut pipeline()).expect("it trains");
    let steps: Vec<u64> = told.borrow().iter().map(|(step, _)| *step).collect();
    assert_eq!(steps, [2, 4, 5]);
    assert!(told.borrow().iter().all(|(_, url)| url == store.url()));
    let (step, files) = fetched(&store).expect("it is whole");
    assert!(step == 5 && files == contents(&place.dir().checkpoint(5)), "the copy has the same bytes");

    let dir = other.dir();
    let newest = Stored::newest(&store).expect("it is read").expect("there is one");
    assert!(dir.fetch(&newest, &mut |_| ()).expect("it is fetched"));
    assert!(!dir.fetch(&newest, &mut |_| ()).expect("it is there"), "it is not fetched again");
    let hash = |mut pipeline: Pipeline<Sequential>, run: Run| {
        run.train(&mut pipeline).expect("it trains");
        pipeline.weights_hash().expect("it is read")
    };
    let went_on = hash(pipeline(), other.run(&store).steps(9));
    let whole = Place::new();
    assert_eq!(went_on, hash(pipeline(), Run::new(whole.at("run")).steps(9)));
    assert_eq!(fetched(&store).expect("it is whole").0, 9);
}

#[test]
fn a_new_run_does_not_mix_its_checkpoints_with_those_of_another_one() {
    let place = Place::new();
    let store = place.copies();
    place.run(&store).steps(3).train(&mut pipeline()).expect("it trains");
    let other = Place::new();
    let error = other.run(&store).steps(3).train(&mut pipeline()).expect_err("they are of another run");
    let error = store_error(error);
    assert!(matches!(&error, StoreError::Occupied { step: 3, url } if url == store.url()), "{error}");
    assert!(!other.at("run").exists(), "nothing was begun");
}

#[test]
fn a_folder_with_other_files_gets_no_checkpoint() {
    let place = Place::new();
    copy_to(&place.checkpoint((4, 1), 2), &place.copies()).expect("copied");
    let newest = Stored::newest(&place.copies()).expect("it is read").expect("there is one");
    fs::create_dir(place.at("run")).expect("made");
    fs::write(place.at("run").join("letter.txt"), "mine").expect("written");
    let error = place.dir().fetch(&newest, &mut |_| ()).expect_err("it is no run");
    has(&error.to_string(), &["is not a run", "nothing was changed"]);
    assert_eq!(contents(&place.at("run")).len(), 1);
}

#[test]
fn what_could_not_be_copied_is_told_and_copied_with_the_next_checkpoint_or_the_next_run() {
    let place = Place::new();
    let store = place.copies();
    let told = Rc::new(RefCell::new(Vec::new()));
    let (heard, folder) = (Rc::clone(&told), place.at("copies"));
    // A file in place of the folder: nothing can be written there.
    let run = place.run(&store).steps(6).keep(9).on(move |event| match event {
        Event::Step(report) if report.step == 0 => fs::write(&folder, "in the way").expect("written"),
        Event::NotCopied { step, error, .. } => heard.borrow_mut().push((*step, error.to_string())),
        _ => {}
    });
    let error = store_error(run.train(&mut pipeline()).expect_err("the last one is not copied"));
    let StoreError::NotCopied { url, steps, .. } = &error else { panic!("{error}") };
    assert_eq!((url.as_str(), steps.as_slice()), (store.url(), &[2, 4, 6][..]));
    has(&error.to_string(), &["after 2, 4, 6 steps are not in", "--resume copies the last one"]);
    let told = told.borrow();
    assert!([2, 4, 6].iter().all(|step| told.iter().any(|(failed, _)| failed == step)), "{told:?}");
    assert!(told.iter().all(|(_, error)| error.contains("copies")), "{told:?}");
    let all = place.dir().checkpoints().expect("listed");
    assert_eq!(all.len(), 3, "the run's own checkpoints are there");

    fs::remove_file(place.at("copies")).expect("removed");
    place.run(&store).steps(6).train(&mut pipeline()).expect("nothing is left to train");
    let (step, files) = fetched(&store).expect("it is whole");
    assert!(step == 6 && files == contents(&place.dir().checkpoint(6)));
}

#[test]
fn a_copy_whose_weights_are_bad_is_found_no_more() {
    let place = Place::new();
    let store = place.copies();
    let mut pipeline = pipeline_of(4, 1, 4);
    let error = place.run(&store).steps(9).train(&mut pipeline).expect_err("step 4 is not finite");
    assert!(matches!(error, Error::NotFinite { step: 4, .. }), "{error:?}");
    assert_eq!(fetched(&store).expect("it is whole").0, 2);
}

#[test]
fn a_checkpoint_that_is_there_is_not_copied_again() {
    let place = Place::new();
    let (store, folder) = (place.copies(), place.checkpoint((4, 1), 2));
    assert!(copy_to(&folder, &store).expect("copied"));
    assert!(!copy_to(&folder, &store).expect("it is there"));
    let model = store.list().expect("listed").into_iter().find(|object| object.name.contains("model"));
    store.remove(&model.expect("it is there").name).expect("removed");
    assert!(copy_to(&folder, &store).expect("it is not all there"));
    assert_eq!(fetched(&store).expect("it is whole").1, contents(&folder));
}
