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
        recipe.assert_everywhere(&plain);
    }
}

/// Evaluations keep documents apart, or not, as their own data says, whatever other data has said before.
#[test]
fn each_evaluation_goes_by_its_own_data() {
    let (joined, apart) = (llama(1), apart(llama(1)));
    let of = |training: &Recipe, stages| {
        let mut pipeline = training.pipeline(stages, "1f1b");
        let mut loss = |recipe: &Recipe, count| {
            pipeline.evaluate(Arc::clone(&recipe.data), count).expect("it evaluates").loss
        };
        [loss(&apart, 1), loss(&joined, 1), loss(&apart, 3), loss(&joined, 3), loss(&apart, 1)]
    };
    let expected = of(&joined, 1);
    assert!(expected[0] != expected[1] && expected[0] == expected[4], "{expected:?}");
    for stages in [1, 3] {
        assert_eq!(of(&joined, stages), expected);
        assert_eq!(of(&apart, stages), expected);
    }
}

/// A text is one document, also after an evaluation of rows that have several.
#[test]
fn a_text_is_written_as_one_document() {
    let recipe = apart(gpt_tied(1));
    let tokens: Vec<u32> = (0..recipe.data.shapes().0.last() as u32).collect();
    let score = |evaluates: bool| {
        let mut pipeline = recipe.pipeline(2, "1f1b");
        if evaluates {
            pipeline.evaluate(Arc::clone(&recipe.data), 1).expect("it evaluates");
        }
        pipeline.next_scores(0, &tokens).expect("it writes")
    };
    assert_eq!(score(true), score(false));
}

#[test]
fn a_model_that_cannot_keep_documents_apart_is_refused_at_launch() {
    let cnn = Cnn { image: [5, 5, 1], channels: vec![3], classes: 4, seed: 1 };
    let data = Arc::new(RandomRows { rows: 4, width: 25, classes: 4 });
    let recipe = apart(recipe_of(move || cnn.model(), data, 4));
    let error = recipe.launch(named("1f1b", 1, 4)).expect_err("images are no documents").to_string();
    has(&error, &["images", "this layer cannot keep documents apart", "Layer::keep_apart"]);
}
