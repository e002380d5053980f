//! Documents that are kept apart, in every cut of a model.

use pipewright::stages::models::Cnn;

use super::divided_models::*;
use super::*;

fn apart(recipe: Recipe) -> Recipe {
    let data = Arc::new(Apart(Arc::clone(&recipe.data)));
    Recipe { data, ..recipe }
}

#[test]
fn every_schedule_and_way_to_recompute_keeps_documents_apart() {
    for make in [gpt_tied as fn(u32) -> Recipe, llama, mixtral] {
        let joined = make(1).plain_hash(2);
        let recipe = apart(make(1));
        let plain = recipe.plain_hash(2);
        assert_ne!(plain, joined, "tokens of other documents are not seen");
        for name in Schedule::names() {
            for how in [Recompute::None, Recompute::Selective, Recompute::Full] {
                let make = |stage| pipewright::stages::recompute(stage, how);
                let mut pipeline = recipe.builder_of(named(name, 2, 4), make).launch().expect("it starts");
                assert_eq!(trained(&mut pipeline, 2), plain, "{name}, {how:?}");
            }
        }
    }
}

#[test]
fn an_evaluation_keeps_documents_apart_and_its_data_may_do_so_only_if_the_training_s_does() {
    let recipe = apart(llama(1));
    let score = |stages| {
        recipe.pipeline(stages, "1f1b").evaluate(Arc::clone(&recipe.data), 3).expect("it evaluates").loss
    };
    assert_eq!(score(1), score(3));
    let joined = llama(1);
    let mut pipeline = joined.pipeline(2, "1f1b");
    assert_ne!(pipeline.evaluate(Arc::clone(&joined.data), 3).expect("it evaluates").loss, score(1));
    let error =
        pipeline.evaluate(Arc::clone(&recipe.data), 3).expect_err("its stages do not expect documents");
    has(&error.to_string(), &["keeps documents apart, and the data of the training does not"]);
}

#[test]
fn a_model_that_cannot_keep_documents_apart_is_refused_at_launch() {
    let cnn = Cnn { image: [5, 5, 1], channels: vec![3], classes: 4, seed: 1 };
    let data = Arc::new(RandomRows { rows: 4, width: 25, classes: 4 });
    let recipe = apart(recipe_of(move || cnn.model(), data, 4));
    let error = recipe.launch(named("1f1b", 1, 4)).expect_err("images are no documents").to_string();
    has(&error, &["images", "this layer cannot keep documents apart", "Layer::keep_apart"]);
}
