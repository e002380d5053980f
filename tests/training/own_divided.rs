//! A layer of one's own whose weights are divided among shards, through the public API.

use pipewright::stages::layers::OwnRows;
use pipewright::stages::{
    Division, ForwardContext, Kept, Layer, Parameter, Result as StageResult, Shape, Sharding, Team,
};

use super::*;

const WIDTH: usize = 11;
const INNER: usize = 13;

/// `y = (x U^T)^2 D`, on rows of 11 numbers. `U` and `D` are `[13, 11]`: both have a row for each of the 13
/// numbers between, and these are divided.
#[derive(Debug)]
struct Squares {
    division: Division,
    up: Parameter,
    down: Parameter,
    team: Option<Team>,
}

impl Squares {
    fn new(sharding: Sharding) -> StageResult<Self> {
        let division = Division::new(sharding, INNER, &[1])?;
        let part = |name: &str| -> StageResult<Parameter> {
            let mut parameter = Parameter::new(name, &[INNER, WIDTH], Init::Normal(0.3), 1);
            parameter.divide_rows(&division)?;
            Ok(parameter)
        };
        Ok(Self { up: part("squares.up")?, down: part("squares.down")?, division, team: None })
    }

    /// All rows, of this shard's.
    fn whole(&self, own: Tensor) -> StageResult<Tensor> {
        self.team.as_ref().map_or(Ok(own.clone()), |team| team.gather(&own))
    }

    /// `inner` times some weights, for this shard's rows: the groups of numbers are added up by the tree.
    fn outward(&self, inner: &Tensor, weights: &[f32]) -> StageResult<Tensor> {
        let rows = inner.dims()[0];
        let part = |group: &Vec<std::ops::Range<usize>>| {
            let mut sum = vec![0.0; rows * WIDTH];
            for (to, from) in sum.chunks_mut(WIDTH).zip(inner.f32().chunks(self.division.len())) {
                for at in group.iter().cloned().flatten() {
                    let weights = &weights[at * WIDTH..][..WIDTH];
                    to.iter_mut().zip(weights).for_each(|(sum, weight)| *sum += from[at] * weight);
                }
            }
            Tensor::from_vec(&[rows, WIDTH], sum)
        };
        let parts: StageResult<Vec<Tensor>> = self.division.groups().iter().map(part).collect();
        let sum = self.division.sum_of_groups(parts?)?;
        self.team.as_ref().map_or(Ok(sum.clone()), |team| team.sum(&sum))
    }

    /// Rows times some weights: the numbers of this shard.
    fn inward(&self, rows: &Tensor, weights: &[f32]) -> StageResult<Tensor> {
        let product = |row: &[f32]| -> Vec<f32> {
            let dot = |weights: &[f32]| row.iter().zip(weights).map(|(x, w)| x * w).sum();
            weights.chunks(WIDTH).map(dot).collect()
        };
        let numbers = rows.f32().chunks(WIDTH).flat_map(product).collect();
        Tensor::from_vec(&[rows.dims()[0], self.division.len()], numbers)
    }
}

/// Adds `inner^T rows` to a gradient.
fn add_products(gradient: &mut Parameter, inner: &Tensor, rows: &Tensor) {
    let count = inner.dims()[1];
    for (inner, row) in inner.f32().chunks(count).zip(rows.f32().chunks(WIDTH)) {
        for (sums, inner) in gradient.grad.chunks_mut(WIDTH).zip(inner) {
            sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += inner * x);
        }
    }
}

fn each(one: &Tensor, other: &Tensor, f: fn(f32, f32) -> f32) -> StageResult<Tensor> {
    Tensor::from_vec(one.dims(), one.f32().iter().zip(other.f32()).map(|(a, b)| f(*a, *b)).collect())
}

impl Layer for Squares {
    fn name(&self) -> &str {
        "squares"
    }

    fn output_shape(&self, input: &Shape) -> StageResult<Shape> {
        Ok(*input)
    }

    fn forward(&mut self, ctx: ForwardContext, input: Tensor) -> StageResult<(Tensor, Kept)> {
        let rows = self.whole(input)?;
        let inner = self.inward(&rows, &self.up.value)?;
        let output = self.outward(&each(&inner, &inner, |a, b| a * b)?, &self.down.value)?;
        Ok((output, Kept::new(ctx, [rows, inner])))
    }

    fn backward_input(&mut self, saved: Kept, grad: Tensor) -> StageResult<(Option<Tensor>, Kept)> {
        let ctx = saved.ctx;
        let [rows, inner] = saved.into_tensors();
        let grad = self.whole(grad)?;
        let inner_grad = each(&inner, &self.inward(&grad, &self.down.value)?, |x, grad| 2.0 * x * grad)?;
        let input_grad = self.outward(&inner_grad, &self.up.value)?;
        Ok((Some(input_grad), Kept::new(ctx, [rows, inner, grad, inner_grad])))
    }

    fn backward_weight(&mut self, pending: Kept) -> StageResult<()> {
        let [rows, inner, grad, inner_grad] = pending.into_tensors();
        add_products(&mut self.up, &inner_grad, &rows);
        add_products(&mut self.down, &each(&inner, &inner, |a, b| a * b)?, &grad);
        Ok(())
    }

    fn visit_parameters<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter)) {
        visit(&mut self.up);
        visit(&mut self.down);
    }

    fn join(&mut self, team: &Team) -> StageResult<()> {
        self.team = Some(team.clone());
        Ok(())
    }
}

/// Two such layers, and a head.
fn squares() -> StageResult<Model> {
    let own = |name: &str| {
        LayerSpec::divided(name, 1.0, |sharding| {
            Ok(vec![Box::new(Squares::new(sharding)?) as Box<dyn Layer>])
        })
    };
    let rows = LayerSpec::of("rows", 0.0, || OwnRows::of_data("rows", WIDTH));
    let head = LayerSpec::divided("head", 1.0, |sharding| {
        let linear = Linear::new("head", [WIDTH, 7], Init::Normal(0.3), 2);
        Ok(vec![Box::new(linear.with_divided_outputs(&Division::new(sharding, 7, &[1])?)) as Box<dyn Layer>])
    });
    Ok(Model::new(vec![rows, own("squares"), head]))
}

#[test]
fn a_layer_of_ones_own_is_divided_with_the_same_bits() {
    let data = Arc::new(RandomRows { rows: 5, width: WIDTH, classes: 7 });
    let mut recipe = Recipe { shard_groups: 4, ..recipe_of(squares, data, 4) };
    let mut plain = recipe.plain();
    let step = |step| plain.step(recipe.data.as_ref(), step, 4, &mut recipe.loss()).0;
    let losses: Vec<f64> = (0..3).map(step).collect();
    for shards in [1, 2, 4] {
        recipe.shards = shards;
        for (stages, replicas) in [(1, 1), (2, 1), (2, 2)] {
            recipe.replicas = replicas;
            let mut pipeline = recipe.pipeline(stages, "1f1b");
            let got: Vec<f64> = (0..3).map(|_| pipeline.step().expect("it trains").loss).collect();
            let how = format!("{shards} shards, {stages} stages, {replicas} replicas");
            assert_eq!(got, losses, "{how}");
            assert_eq!(pipeline.weights_hash().expect("a hash"), plain.hash(), "{how}");
        }
    }
}

#[test]
fn parts_of_other_groups_are_refused() {
    let sharding = Sharding::new(4, pipewright::stages::Shard::WHOLE).expect("it fits");
    let division = Division::new(sharding, 8, &[1]).expect("it fits");
    let zeros = |rows: usize| Tensor::zeros(&[rows, 3]);
    has(
        &division.sum_of_groups(vec![zeros(2); 3]).expect_err("three of four").to_string(),
        &["3 parts of a sum", "this shard has 4 groups"],
    );
    assert!(division.sum_of_groups(vec![zeros(2), zeros(2), zeros(1), zeros(2)]).is_err(), "other rows");
    let mut other = Parameter::new("other", &[7, 3], Init::Normal(0.3), 1);
    let said = other.divide_rows(&division).expect_err("seven rows").to_string();
    has(&said, &["`other` has 7 rows, and its division 8 places"]);
}
