//! The sizes of the comparison.

use std::path::PathBuf;
use std::sync::Arc;

use pipewright::data::{Corpus, DataSource, Images, LabelledImages, Windows};
use pipewright::plan::StageCost;
use pipewright::plan::{Candidate, Fit, LayerCost, LinkCost, ModelCosts, Setting};
use pipewright::schedule::Pass;
use pipewright::stages::Sharding;
use pipewright::stages::models::{Gpt, LayerSpec, Mlp, Model};
use serde::Deserialize;

use crate::products::{self, Product};

/// A result of this program. An error ends it and is printed.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// A model and a batch.
#[derive(Debug)]
pub(crate) struct Size {
    pub(crate) kind: Kind,
    /// Rows of a micro-batch.
    pub(crate) rows: usize,
    pub(crate) micro_batches: u32,
}

#[derive(Debug)]
pub(crate) enum Kind {
    Gpt(Gpt),
    Mlp(Mlp),
}

/// A GPT and a batch in numbers, as `compare.py` draws them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Drawn {
    layers: usize,
    dim: usize,
    heads: usize,
    context: usize,
    vocab: usize,
    rows: usize,
    micro_batches: u32,
}

/// A, B, C, D or S; for a GPU `gpt2`, or `tiny` for an emulated GPU; or the JSON of [`Drawn`].
pub(crate) fn named(name: &str) -> Result<Size> {
    let size = |kind, rows, micro_batches| Size { kind, rows, micro_batches };
    Ok(match name {
        "A" => size(Kind::Gpt(gpt(256, 8, 8, 128)), 4, 8),
        "B" => size(Kind::Gpt(gpt(512, 8, 8, 256)), 2, 8),
        "C" => size(Kind::Gpt(gpt(8, 0, 1, 8)), 1, 64),
        "D" => {
            let mlp = Mlp { sizes: vec![784, 2048, 2048, 10], dropout: 0.0, seed: 0 };
            size(Kind::Mlp(mlp), 64, 8)
        }
        // As large as SmolLM2-135M, with a number of heads that two processes of PyTorch can share.
        "S" => {
            let gpt = Gpt { vocab: 49_152, tied: true, ..gpt(576, 30, 12, 256) };
            size(Kind::Gpt(gpt), 1, 4)
        }
        // GPT-2 with 124 million parameters. Its 50,257 tokens are rounded up to a multiple of 128.
        "gpt2" => {
            let gpt = Gpt { vocab: 50_304, tied: true, ..gpt(768, 12, 12, 1024) };
            size(Kind::Gpt(gpt), 16, 8)
        }
        "tiny" => {
            let gpt = Gpt { tied: true, ..gpt(64, 2, 1, 16) };
            size(Kind::Gpt(gpt), 1, 4)
        }
        numbers if numbers.starts_with('{') => {
            let drawn: Drawn =
                serde_json::from_str(numbers).map_err(|error| format!("{numbers}: {error}"))?;
            let gpt = Gpt { vocab: drawn.vocab, ..gpt(drawn.dim, drawn.layers, drawn.heads, drawn.context) };
            size(Kind::Gpt(gpt), drawn.rows, drawn.micro_batches)
        }
        other => {
            let message = format!("there is no size {other}: A, B, C, D, S, gpt2, tiny or JSON");
            return Err(message.into());
        }
    })
}

fn gpt(dim: usize, layers: usize, heads: usize, context: usize) -> Gpt {
    Gpt { vocab: 256, dim, layers, heads, context, dropout: 0.0, tied: false, seed: 0 }
}

impl Size {
    pub(crate) fn model(&self) -> Result<Model> {
        let model = match &self.kind {
            // A GPT has at least one block. Without it, only the embedding and the head are left.
            Kind::Gpt(gpt) if gpt.layers == 0 => {
                let mut units = Gpt { layers: 1, ..*gpt }.model()?.into_units();
                units.retain(|unit| !unit.name.starts_with("h."));
                Model::new(units)
            }
            Kind::Gpt(gpt) => gpt.model()?,
            // PyTorch's zero-bubble schedules lose gradients if the first stage has no parameters, so
            // `flatten` is part of `fc0`.
            Kind::Mlp(mlp) => {
                let mut units = mlp.model()?.into_units();
                let (flatten, first) = (units.remove(0), units.remove(0));
                let (name, cost) = (first.name.clone(), first.cost);
                let both = move || {
                    let build = |unit: &LayerSpec| unit.build(Sharding::default());
                    Ok([build(&flatten)?, build(&first)?].into_iter().flatten().collect())
                };
                units.insert(0, LayerSpec::new(name, cost, both));
                Model::new(units)
            }
        };
        Ok(model)
    }

    /// The batches from a file of text, or from a folder with labelled images.
    pub(crate) fn data(&self, path: PathBuf) -> Result<Arc<dyn DataSource>> {
        const SEED: u64 = 1234;
        match &self.kind {
            Kind::Gpt(gpt) => {
                let corpus = Arc::new(Corpus::text(&[path])?);
                corpus.check_vocabulary(gpt.vocab)?;
                let all = 0..corpus.count();
                Ok(Arc::new(Windows::drawn(corpus, all, self.rows, gpt.context, SEED)?))
            }
            Kind::Mlp(_) => {
                let images = Arc::new(LabelledImages::read(&path, None)?);
                let all = 0..images.count();
                let batches = Images::shuffled(images, all, self.rows, self.micro_batches, SEED)?;
                Ok(Arc::new(batches))
            }
        }
    }

    /// How many targets (tokens or rows) a step's loss counts.
    pub(crate) fn targets(&self) -> usize {
        let each = match &self.kind {
            Kind::Gpt(gpt) => gpt.context,
            Kind::Mlp(_) => 1,
        };
        self.rows * each * self.micro_batches as usize
    }

    /// The matrix products of each unit for one micro-batch.
    pub(crate) fn products(&self) -> Result<Vec<(String, Vec<Product>)>> {
        let of = |unit: &str| match &self.kind {
            Kind::Gpt(gpt) => products::of_gpt(gpt, unit, self.rows),
            Kind::Mlp(mlp) => products::of_mlp(&mlp.sizes, unit, self.rows),
        };
        let model = self.model()?;
        let names = model.names().into_iter();
        Ok(names.map(|name| (name.to_owned(), of(name))).collect())
    }

    /// Operations per target: forward, input gradients and weight gradients.
    pub(crate) fn flops(&self) -> Result<f64> {
        let products = self.products()?;
        let all = products.iter().flat_map(|(_, products)| products);
        let step = all.map(|product| product.flops).sum::<f64>() * f64::from(self.micro_batches);
        Ok(step / self.targets() as f64)
    }

    /// The number of parameters. The token table counts once if it is also the output projection.
    pub(crate) fn parameters(&self) -> usize {
        match &self.kind {
            Kind::Gpt(gpt) => {
                let tables = (1 + usize::from(!gpt.tied)) * gpt.vocab + gpt.context;
                // A block has weights of 3, 1, 4 and 4 times dim^2, their biases, and two norms. There is one
                // more norm at the end.
                gpt.dim * (tables + gpt.layers * (12 * gpt.dim + 13) + 2)
            }
            Kind::Mlp(mlp) => mlp.sizes.windows(2).map(|pair| (pair[0] + 1) * pair[1]).sum(),
        }
    }

    /// Operations per token, by the usual formulas for model FLOP utilization. The first is PaLM's, 6 N + 12
    /// L C T (Chowdhery et al., 2022, appendix B), which counts all of causal attention. The second, 6 N + 6
    /// L C T, leaves out the masked half.
    pub(crate) fn mfu_flops(&self) -> [f64; 2] {
        let weights = 6 * self.parameters();
        let pairs = match &self.kind {
            Kind::Gpt(gpt) => gpt.layers * gpt.dim * gpt.context,
            Kind::Mlp(_) => 0,
        };
        [12, 6].map(|each| (weights + each * pairs) as f64)
    }

    /// The cut and the schedule for this many ranks, fitted to the matrix products of each unit. `schedule`
    /// is a name, optionally with the number of stages per rank (`auto:2`); the default is the fewest.
    pub(crate) fn plan(&self, schedule: &str, ranks: u32) -> Result<Candidate> {
        let (name, chunks) = schedule.split_once(':').unwrap_or((schedule, ""));
        let chunks = match chunks {
            "" if name == pipewright::plan::AUTO => 1,
            "" => *pipewright::schedule::Schedule::chunks(name)?.start(),
            chunks => chunks.parse().map_err(|_| format!("{schedule}: `{chunks}` is no number of stages"))?,
        };
        let setting = Setting {
            schedule: name.to_owned(),
            ranks,
            chunks,
            micro_batches: self.micro_batches,
            replicas: 1,
            gradient_groups: 1,
        };
        match setting.fit(&self.costs()?, None)? {
            Fit::Within(candidate) => Ok(*candidate),
            Fit::Above(_) => unreachable!("there is no limit to the memory"),
        }
    }

    /// Costs of units: the operations serve as times. Each unit keeps the same memory, until its
    /// backward-weight.
    fn costs(&self) -> Result<ModelCosts> {
        let layers = self.products()?.into_iter().map(|(name, products)| {
            let flops = |pass| {
                let of_pass = products.iter().filter(|product| product.pass == pass);
                of_pass.map(|product| product.flops).sum::<f64>()
            };
            let cost = StageCost {
                forward: flops(Pass::Forward),
                backward_input: flops(Pass::BackwardInput),
                backward_weight: flops(Pass::BackwardWeight),
                pending: 1.0,
                ..StageCost::default()
            };
            LayerCost {
                name,
                cost,
                backward: cost.backward_input + cost.backward_weight,
                shared: 0.0,
                output: 0.0,
            }
        });
        Ok(ModelCosts::new(layers.collect(), 0.0, LinkCost::default())?)
    }
}
