//! If processes do not build the same pipeline, or do not make the same calls, all of them are refused, and
//! the error says what differs.

use pipewright::PipelineBuilder;
use pipewright::stages::loss::{CrossEntropy, Loss, Score};
use pipewright::stages::optimizer::{AdamW, LearningRate, Sgd};
use pipewright::stages::{DType, Device, Place, Result, StageBuilder};

use super::*;

const TOKENS: RandomTokens = RandomTokens { rows: 2, seq: 8, vocab: 17 };

type Builder = PipelineBuilder<Sequential>;

fn small() -> Recipe {
    recipe(3, true, 4)
}

fn schedule(name: &str, micro_batches: u32) -> Schedule {
    Schedule::named(name, 2, micro_batches).expect("the sizes fit")
}

/// A model with this seed, cut into stages with these numbers of layers.
fn cut(builder: Builder, seed: u64, counts: [usize; 2]) -> Builder {
    let gpt = Gpt { vocab: 17, dim: 16, layers: 3, heads: 2, context: 8, dropout: 0.1, tied: true, seed };
    builder.stages(gpt.model().and_then(|model| model.cut(&counts)).expect("it fits"))
}

/// Data that differs from other data in one token of its first micro-batch, or in its shape.
struct Altered {
    shift: u32,
    rows: usize,
}

impl DataSource for Altered {
    fn micro_batch(&self, step: u64, at: MicroBatch) -> pipewright::Result<(Tensor, Tensor)> {
        let tokens = RandomTokens { rows: self.rows, ..TOKENS };
        let (input, mut target) = tokens.micro_batch(step, at)?;
        target.ids_mut()[3] = (target.ids()[3] + self.shift) % 17;
        Ok((input, target))
    }

    fn shapes(&self) -> (Shape, Shape) {
        let shape = Shape::ids(&[self.rows, 8]);
        (shape, shape)
    }
}

/// Another loss of the same numbers.
#[derive(Clone, Debug)]
struct OtherLoss(CrossEntropy);

impl Loss<Tensor> for OtherLoss {
    fn check(&self, output: &Shape, target: &Shape) -> Result<()> {
        self.0.check(output, target)
    }

    fn forward(&mut self, output: Tensor, target: Tensor) -> Result<(Score, Tensor)> {
        self.0.forward(output, target)
    }

    fn score(&mut self, output: Tensor, target: Tensor) -> Result<Score> {
        self.0.score(output, target)
    }
}

/// The error of both processes when process 1 builds something else than process 0.
#[track_caller]
fn refused(part: &str, change: fn(Builder) -> Builder) -> String {
    let said = in_processes(2, |world| {
        let mut builder = small().builder(schedule("1f1b", 4));
        builder = cut(builder, 3, [4, 4]).data(Arc::new(TOKENS));
        if world.process() == 1 {
            builder = change(builder);
        }
        builder.world(world).launch().expect_err("they differ").to_string()
    });
    assert_eq!(said[0], said[1]);
    let expected = format!("process 1 differs from process 0 in {part}: it has ");
    assert!(said[0].starts_with(&expected), "{}", said[0]);
    said[0].clone()
}

#[test]
fn processes_that_build_different_pipelines_are_refused() {
    refused("the schedule", |builder| builder.schedule(schedule("gpipe", 4)));
    refused("the schedule", |builder| builder.schedule(schedule("1f1b", 8)));
    refused("the order of rank 0's actions", |builder| {
        let gpipe = schedule("gpipe", 4);
        let rows = [0, 1].map(|rank| gpipe.passes(pipewright::id::Rank(rank)).collect());
        let placement = gpipe.placement().clone();
        builder.schedule(Schedule::from_passes("1f1b", placement, 4, rows.into()).expect("a valid order"))
    });
    let said = refused("the layers of stage 0", |builder| cut(builder, 3, [5, 3]));
    has(&said, &["it has embed, h.0.attn, h.0.mlp, h.1.attn, h.1.mlp of Gpt { vocab: 17, "]);
    has(&refused("the layers of stage 0", |builder| cut(builder, 4, [4, 4])), &["seed: 4", "seed: 3"]);
    refused("the loss", |builder| builder.loss(OtherLoss(CrossEntropy::default())));
    let said = refused("the loss", |builder| builder.loss(CrossEntropy::ignoring(255)));
    assert!(
        said.ends_with(
            "it has CrossEntropy { ignore: Some(255), smoothing: 0.0, of_tokens: false, shard_groups: 1 }, \
             process 0 has CrossEntropy { ignore: Some(4294967295), smoothing: 0.0, of_tokens: false, \
             shard_groups: 1 }"
        ),
        "{said}"
    );
    refused("the loss", |builder| {
        builder.loss(CrossEntropy::default().with_shard_groups(2).expect("a power of two"))
    });
    let said = refused("the layers of stage 0", |builder| {
        let model = (small().model)().with_shard_groups(2).expect("a power of two");
        builder.stages(model.cut(&[4, 4]).expect("it fits"))
    });
    has(&said, &["; 2 shard groups"]);
    refused("the optimizer", |builder| builder.optimizer(Sgd { momentum: 0.9, ..Sgd::default() }));
    refused("the optimizer", |builder| builder.optimizer(AdamW { eps: 1e-6, ..AdamW::default() }));
    refused("the learning rate", |builder| builder.learning_rate(LearningRate::Constant(0.02)));
    let said = refused("the gradient clipping", |builder| builder.clip(2.0));
    assert!(said.ends_with("it has 2, process 0 has 0.5"), "{said}");
    refused("the devices", |builder| builder.places(vec![Place { device: Device::Cpu, dtype: DType::Bf16 }]));
    refused("the shapes of the data", |builder| builder.data(Arc::new(Altered { shift: 0, rows: 3 })));
    refused("the data", |builder| builder.data(Arc::new(Altered { shift: 1, rows: 2 })));
}

/// What two processes get that are given closures, which cannot be compared. Process 1 cuts the model after
/// another number of layers.
fn by_closures(cut_after: usize) -> Vec<pipewright::Result<Vec<String>>> {
    in_processes(2, |world| {
        let first = [4, cut_after][world.process() as usize];
        let model = (small().model)();
        let stages = model.cut(&[first, 8 - first]).expect("it fits");
        let closure = |stage: StageBuilder<Sequential>| Box::new(move || stage.build()) as _;
        let builder = small().builder(schedule("1f1b", 4));
        let builder = builder.stages(stages.into_iter().map(closure).collect());
        let pipeline = builder.world(world).launch()?;
        let names = pipeline.parameters().iter().map(|parameter| parameter.name.clone());
        Ok(names.collect())
    })
}

#[test]
fn a_layer_that_two_processes_build_is_refused_in_both() {
    let said = by_closures(3).into_iter().map(|launched| launched.expect_err("twice").to_string());
    let said: Vec<String> = said.collect();
    assert_eq!(said[0], said[1]);
    assert!(
        said[0].contains("`h.1.attn.") && said[0].contains("stage 0") && said[0].contains("stage 1"),
        "{}",
        said[0]
    );
}

#[test]
fn a_layer_that_no_process_builds_is_in_the_list_of_none() {
    let lists = by_closures(5).into_iter().map(|launched| launched.expect("closures say nothing"));
    let lists: Vec<Vec<String>> = lists.collect();
    assert_eq!(lists[0], lists[1]);
    let of = |unit: &str| lists[0].iter().filter(|name| name.starts_with(unit)).count();
    assert_eq!([of("h.1.mlp"), of("h.1.attn"), of("h.2.mlp")].map(|count| count > 0), [false, true, true]);
}

/// A call of a pipeline, and how messages name it.
type Call = (&'static str, fn(&mut Pipeline<Sequential>, &Path) -> pipewright::Result<()>);

const CALLS: [Call; 8] = [
    ("step 1", |pipeline, _| pipeline.step().map(drop)),
    ("traced step 1", |pipeline, _| pipeline.step_traced().map(drop)),
    ("evaluation of 3 micro-batches of ids[2, 8]", |pipeline, _| {
        pipeline.evaluate(Arc::new(TOKENS), 3).map(drop)
    }),
    ("evaluation of 2 micro-batches of ids[2, 8]", |pipeline, _| {
        pipeline.evaluate(Arc::new(TOKENS), 2).map(drop)
    }),
    ("saving of ", |pipeline, folder| pipeline.save(folder.join("checkpoint"))),
    ("loading of ", |pipeline, folder| pipeline.load(folder.join("from-before"))),
    ("hash of the weights", |pipeline, _| pipeline.weights_hash().map(drop)),
    ("question whether any process says yes", |pipeline, _| pipeline.any(true).map(drop)),
];

#[test]
fn processes_that_make_different_calls_are_told_both_and_stop() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let mut alone = small().pipeline(1, "1f1b");
    alone.save(folder.path().join("from-before")).expect("saved");
    for first in CALLS {
        for second in CALLS.iter().filter(|second| second.0 != first.0) {
            let said = in_processes(2, |world| {
                let call = [first, *second][world.process() as usize];
                let builder = small().builder(schedule("1f1b", 4));
                let mut pipeline = builder.world(world).launch().expect("it starts");
                pipeline.step().expect("a step");
                // A call that needs nothing from the others may end before their call is known. Then the next
                // one fails.
                let error = call.1(&mut pipeline, folder.path()).and_then(|()| pipeline.step().map(drop));
                error.expect_err("they differ").to_string()
            });
            for said in said {
                for name in [first.0, second.0] {
                    assert!(
                        said.contains(name) && said.ends_with("all processes must make the same calls"),
                        "{} and {}: {said}",
                        first.0,
                        second.0
                    );
                }
            }
        }
    }
}

#[test]
fn the_beginning_of_a_run_is_no_question_of_another_process() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let said = in_processes(2, |world| {
        let process = world.process();
        let builder = small().builder(schedule("1f1b", 4));
        let mut pipeline = builder.world(world).launch().expect("it starts");
        let error = match process {
            0 => Run::new(folder.path().join("run")).begin(&mut pipeline).err(),
            _ => pipeline.any(true).err(),
        };
        error.expect("they differ").to_string()
    });
    for said in said {
        has(&said, &["question whether any process says yes"]);
        assert!(said.ends_with("all processes must make the same calls"), "{said}");
    }
}

/// Data that differs from other data in one token of one step and micro-batch.
fn altered_later(shift: u32, at: (u64, u32)) -> Arc<dyn DataSource> {
    changed(Arc::new(TOKENS), move |tokens, step, micro_batch| {
        let (mut input, target) = tokens.micro_batch(step, micro_batch)?;
        if (step, micro_batch.0) == at {
            input.ids_mut()[3] = (input.ids()[3] + shift) % 17;
        }
        Ok((input, target))
    })
}

#[test]
fn data_of_ones_own_that_differs_in_a_later_step_is_refused_there() {
    let said = in_processes(2, |world| {
        let (shift, at) = (world.process(), (3, 2));
        let builder = small().builder(schedule("1f1b", 4));
        let builder = builder.data(altered_later(shift, at));
        let mut pipeline = builder.world(world).launch().expect("their first batches are equal");
        train(&mut pipeline, 3);
        [pipeline.step(), pipeline.step()].map(|step| step.expect_err("other data").to_string())
    });
    let told = "the data of step 3 differ: process 1 has read another micro-batch 2 than process 0. All ";
    for [first, then] in said {
        assert!(first.starts_with(told), "{first}");
        assert_eq!(then, format!("the pipeline has stopped after a failure: {first}"));
    }
}

#[test]
fn an_evaluation_on_data_that_differs_is_refused() {
    for (at, told) in [
        ((0, 0), "all processes must make the same calls"),
        ((0, 1), "the data of the evaluation differ: process 1 has read another micro-batch 1 than"),
    ] {
        let said = in_processes(2, |world| {
            let shift = world.process();
            let builder = small().builder(schedule("1f1b", 4));
            let mut pipeline = builder.world(world).launch().expect("it starts");
            let evaluated = pipeline.evaluate(altered_later(shift, at), 3);
            evaluated.expect_err("other data").to_string()
        });
        assert!(said.iter().all(|said| said.contains(told)), "{said:?}");
    }
}
