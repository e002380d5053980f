//! Parameters are copies of each other only because a layer says so, never because their names are equal.

use super::*;

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
