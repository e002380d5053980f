//! A pipeline writes text: the next tokens go through its stages, and the scores are the same as with one
//! stage.

use super::*;
use crate::text::{TEXT, gpt, llama, mixtral, of_one_stage, of_pipeline};
use crate::worlds::in_processes;

#[test]
fn scores_are_those_of_one_stage_for_every_cut_and_placement() {
    for recipe in [gpt(), llama(), mixtral()] {
        let expected = of_one_stage(&recipe);
        assert!(expected.iter().all(|scores| scores.len() == 17));
        for (schedule, ranks) in
            [("gpipe", 1), ("1f1b", 2), ("1f1b", 5), ("interleaved-1f1b", 2), ("zb-v", 2), ("zb-v", 3)]
        {
            let schedule = named(schedule, ranks, 4);
            let what = format!("{} on {ranks} ranks", schedule.name());
            let mut pipeline = recipe.launch(schedule).expect("it starts");
            assert_eq!(of_pipeline(&mut pipeline), expected, "{what}");
        }
    }
}

#[test]
fn every_process_gets_the_scores() {
    let expected = of_one_stage(&llama());
    let told = in_processes(2, |world| {
        let builder = llama().builder(named("zb-v", 2, 4));
        of_pipeline(&mut builder.world(world).launch().expect("it starts"))
    });
    assert_eq!(told, [expected.clone(), expected]);
}

#[test]
fn other_tokens_in_another_process_are_refused() {
    let told = in_processes(2, |world| {
        let process = world.process();
        let schedule = Schedule::gpipe(2, 4).expect("the sizes fit");
        let builder = gpt().builder(schedule);
        let mut pipeline = builder.world(world).launch().expect("it starts");
        let error = pipeline.next_scores(0, &[1, process]).expect_err("they differ");
        error.to_string()
    });
    for said in told {
        has(&said, &["2 next tokens", "after 0"]);
    }
}

#[test]
fn a_text_goes_on_from_any_of_its_tokens_until_the_weights_change() {
    let mut pipeline = gpt().pipeline(2, "gpipe");
    let mut next = |past, tokens: &[u32]| pipeline.next_scores(past, tokens);
    next(0, &TEXT[..3]).expect("it computes");
    let fourth = next(3, &TEXT[3..4]).expect("it goes on");
    next(4, &[11, 12]).expect("it goes on");
    let error = next(7, &[1]).expect_err("six were read").to_string();
    assert!(error.starts_with("tokens cannot follow 7 others: the stages have had 6"), "{error}");
    assert_eq!(next(3, &TEXT[3..4]).expect("it goes back"), fourth);
    assert!(next(4, &[]).expect_err("nothing").to_string().contains("one token at least"));
    pipeline.step().expect("it trains between");
    let error = pipeline.next_scores(4, &[1]).expect_err("the weights are others").to_string();
    has(&error, &["begin a new one with `past` 0"]);
    pipeline.next_scores(0, &TEXT[..4]).expect("a new text");
}

#[test]
fn the_first_of_several_replicas_writes() {
    let expected = of_one_stage(&gpt());
    let recipe = || Recipe { replicas: 2, ..gpt() };
    for (ranks, schedule) in [(1, "gpipe"), (2, "1f1b"), (2, "zb-v")] {
        let mut pipeline = recipe().pipeline(ranks, schedule);
        assert_eq!(of_pipeline(&mut pipeline), expected, "{ranks} ranks, {schedule}");
        pipeline.step().expect("it goes on");
    }
    let told = in_processes(2, |world| {
        let schedule = Schedule::gpipe(2, 2).expect("the sizes fit");
        let builder = recipe().builder(schedule);
        of_pipeline(&mut builder.world(world).launch().expect("it starts"))
    });
    assert_eq!(told, [expected.clone(), expected], "in two processes");
}

#[test]
fn a_stage_that_writes_no_text_says_so() {
    let mut pipeline = Pipeline::builder()
        .schedule(Schedule::gpipe(2, 1).expect("two ranks"))
        .stages(vec![PassOn::calling(|_| {}), PassOn::calling(|_| {})])
        .loss(MeanSquaredError::default())
        .data(Arc::new(Ones))
        .pin(false)
        .launch()
        .expect("it starts");
    has(&pipeline.next_scores(0, &[1]).expect_err("it cannot"), &["rank 0", "this stage writes no text"]);
    has(&pipeline.next_scores(0, &[1]).expect_err("it has stopped"), &["this stage writes no text"]);
}

/// Rounds to 16 bits, toward zero.
fn rounded(number: f32) -> f32 {
    f32::from_bits(number.to_bits() & 0xffff_0000)
}

/// A model of three stages whose weights fit into 16 bits, held in 32 or in 16 bits.
fn of_halves(held: DType, ranks: u32) -> Pipeline<Sequential> {
    let recipe = llama();
    let wrapped = |stage: StageBuilder<Sequential>| {
        Box::new(move || {
            let mut stage = stage.build()?;
            let all = stage.parameters().into_iter().map(|parameter| parameter.value.to_vec());
            let all: Vec<Vec<f32>> = all.collect();
            let mut all = all.iter();
            let mut read = |parameter: &mut Parameter| {
                let numbers = all.next().expect("in the same order").iter();
                parameter.value.iter_mut().zip(numbers).for_each(|(to, &from)| *to = rounded(from));
                Ok(())
            };
            match held {
                DType::F32 => stage.try_visit_parameters(&mut read)?,
                DType::Bf16 => stage.read_in_bf16(read)?,
            }
            let matrices = stage.parameters().into_iter().filter(|parameter| parameter.is_matrix());
            let mut matrices = matrices.map(|parameter| parameter.value.is_empty());
            assert!(matrices.all(|is_empty| is_empty == (held == DType::Bf16)));
            Ok(stage)
        }) as StageBuilder<Sequential>
    };
    recipe.builder_of(named("gpipe", ranks, 4), wrapped).launch().expect("it starts")
}

#[test]
fn weights_of_16_bits_held_in_16_bits_give_the_same_scores() {
    let expected = of_pipeline(&mut of_halves(DType::F32, 1));
    for ranks in [1, 2, 3] {
        assert_eq!(of_pipeline(&mut of_halves(DType::Bf16, ranks)), expected, "{ranks} ranks");
    }
}
