//! Parameters are copies of each other only because a layer says so, never because their names are equal.

use super::*;
use crate::noted::Noted;

const WIDTH: usize = 4;

/// A layer whose weight has this name, and is a tied copy if `is_copy` is set.
fn layer(name: &'static str, weight: &'static str, is_copy: bool) -> LayerSpec {
    LayerSpec::of(name, 1.0, move || {
        let init = Init::Normal(0.5);
        let parameter = Parameter::new(weight, &[WIDTH, WIDTH], init, 1);
        let parameter = if is_copy { parameter.tied() } else { parameter };
        Linear::new(name, [WIDTH, WIDTH], init, 1).with_weight(parameter).expect("the same dimensions")
    })
}

fn launch(layers: Vec<LayerSpec>, stages: u32) -> pipewright::Result<Pipeline<Sequential>> {
    let data = RandomRows { rows: 2, width: WIDTH, classes: WIDTH as u32 };
    Pipeline::builder()
        .schedule(Schedule::one_f_one_b(stages, 2)?)
        .stages(Model::new(layers).split(stages)?)
        .loss(CrossEntropy::default())
        .data(Arc::new(data))
        .pin(false)
        .launch()
}

#[test]
fn two_parameters_of_one_name_that_nobody_tied_are_refused() {
    for (stages, second) in [(1, 0), (2, 1)] {
        let layers = vec![layer("one", "same", false), layer("two", "same", false)];
        let error = launch(layers, stages).expect_err("one name");
        assert_eq!(
            error.to_string(),
            format!(
                "two parameters have the name `same`: the one of layer `one` in stage 0 and the one of layer \
                 `two` in stage {second}; give them two names, or declare one a copy of the other \
                 (`Parameter::tied`)"
            )
        );
    }
}

#[test]
fn a_copy_needs_an_original() {
    let layers = vec![layer("one", "first", false), layer("two", "second", true)];
    let error = launch(layers, 2).expect_err("no original");
    assert_eq!(
        error.to_string(),
        "the parameter `second` of layer `two` in stage 1 is a tied copy, but no layer holds the parameter \
         that it copies: one of that name that is not tied"
    );
}

#[test]
fn a_declared_copy_stays_equal_whichever_of_the_two_comes_first() {
    let hash = |copies: [bool; 2], stages| {
        let layers = vec![layer("one", "same", copies[0]), layer("two", "same", copies[1])];
        let mut pipeline = launch(layers, stages).expect("tied");
        train(&mut pipeline, 3);
        let weights = pipeline.parameters().iter().filter(|info| info.name == "same");
        assert_eq!(weights.count(), 2);
        pipeline.weights_hash().expect("it runs")
    };
    for copies in [[false, true], [true, false]] {
        assert_eq!(hash(copies, 1), hash(copies, 2));
    }
}

/// Also with a sharded optimizer, with both layers in one stage and in two stages of one rank, after a
/// checkpoint, and whichever of the two comes first.
#[test]
fn copies_on_one_rank_are_updated_once_and_have_one_state() {
    let run = |copies: [bool; 2], schedule: Schedule, replicas: u32, noted: &Noted| {
        let layers = vec![layer("one", "same", copies[0]), layer("two", "same", copies[1])];
        let stages = Model::new(layers).split(schedule.stages()).expect("two layers");
        let builder = Pipeline::builder().schedule(schedule).stages(stages).loss(CrossEntropy::default());
        let data = RandomRows { rows: 2, width: WIDTH, classes: WIDTH as u32 };
        let builder = builder.data(Arc::new(data)).pin(false).optimizer(noted.clone());
        let builder = builder.replicas(replicas).gradient_groups(2).sharded(replicas > 1);
        builder.launch().expect("it starts")
    };
    let one_rank = || Schedule::named("1f1b", 1, 2).expect("it fits");
    let two_stages = || Schedule::named("interleaved-1f1b", 1, 2).expect("it fits");
    let two_ranks = || Schedule::named("1f1b", 2, 2).expect("it fits");
    for copies in [[false, true], [true, false]] {
        let expected = trained(&mut run(copies, two_ranks(), 1, &Noted::default()), 4);
        let of_replicas = trained(&mut run(copies, two_ranks(), 2, &Noted::default()), 4);
        assert_eq!(of_replicas, expected);
        for (schedule, replicas) in [(one_rank(), 1), (two_stages(), 1), (one_rank(), 2), (two_stages(), 2)] {
            let (first, second) = (Noted::default(), Noted::default());
            let folder = tempfile::tempdir().expect("a folder");
            let mut pipeline = run(copies, schedule.clone(), replicas, &first);
            train(&mut pipeline, 2);
            pipeline.save(folder.path().join("saved")).expect("it is saved");
            let mut pipeline = run(copies, schedule, replicas, &second);
            pipeline.load(folder.path().join("saved")).expect("it loads");
            assert_eq!(trained(&mut pipeline, 2), expected, "{copies:?}, {replicas} replicas");
            for noted in [first, second] {
                let of_table = noted.of("same");
                // A replica has state for its part. Of a tensor this small, one replica has all.
                assert_eq!(of_table.len(), 2 * replicas as usize, "{copies:?}, {replicas} replicas");
                assert_eq!(of_table.iter().sum::<usize>(), 2 * 2 * WIDTH * WIDTH);
            }
        }
    }
}
