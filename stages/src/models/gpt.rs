//! GPT-2. Radford et al., "Language models are unsupervised multitask learners" (2019).

use super::model::{LayerSpec, Model};
use super::part::Part;
use super::reward;
use crate::chain;
use crate::error::{Result, check_positive};
use crate::layers::{
    Attention, Block, Dropout, Embedding, Gelu, GeluForm, Heads, LayerNorm, Layout, Linear, Recomputed,
};
use crate::parameter::Parameter;
use crate::parameter::init::Init;
use crate::shards::{Division, Sharding};
use crate::stage::layer::Layer;

/// The standard deviation of the starting weights.
const DEVIATION: f32 = 0.02;

/// A GPT-2: ids `[batch, time]` to logits `[batch, time, vocab]`.
///
/// Parameters have the names, layouts and starting distributions of Hugging Face's GPT-2. Units: `embed`,
/// `h.0.attn`, `h.0.mlp`, ..., `head` (final norm and output projection).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gpt {
    /// The number of different tokens.
    pub vocab: usize,
    /// The width of the model.
    pub dim: usize,
    /// The number of blocks.
    pub layers: usize,
    /// The number of attention heads in a block; must divide `dim`.
    pub heads: usize,
    /// The longest sequence, in tokens.
    pub context: usize,
    /// The probability of dropout, on the embedding and on the output of each attention and MLP.
    pub dropout: f32,
    /// Whether the output projection uses the weights of the token embedding.
    pub tied: bool,
    /// The seed of the starting weights and of dropout.
    pub seed: u64,
}

impl Gpt {
    /// The model, not yet split.
    ///
    /// # Errors
    /// When a size is 0, `dim` is not divisible by `heads`, or `dropout` is not in `0..1`.
    pub fn model(&self) -> Result<Model> {
        let gpt = *self;
        let mut units = self.body()?;
        let parts = vec![Part::Norm(self.dim, 2), Part::Scores([self.dim, self.vocab], self.tied)];
        units.push(LayerSpec::of_divided_parts("head", parts, move |sharding| gpt.head(sharding)));
        Ok(Model::new(units).with_settings(format!("{self:?}")))
    }

    /// The same as a reward model: ids `[batch, time]` to a number for each token, `[batch, time, 1]`. Its
    /// head has the weights `score.weight`, with the names and the start of Hugging Face's
    /// `GPT2ForSequenceClassification`, and no scores of tokens. It is not divided among shards.
    ///
    /// # Errors
    /// As for [`Gpt::model`].
    pub fn reward_model(&self) -> Result<Model> {
        let gpt = *self;
        let mut units = self.body()?;
        let parts = vec![Part::Norm(self.dim, 2), reward::part(self.dim)];
        units.push(LayerSpec::of_parts("head", parts, move || {
            let score = reward::layer(gpt.dim, Init::Normal(DEVIATION), gpt.seed)?;
            Ok(chain![Recomputed::new(LayerNorm::new("ln_f", gpt.dim), score)])
        }));
        Ok(Model::new(units).with_settings(format!("{self:?}, rewards")))
    }

    /// All units but the head.
    fn body(&self) -> Result<Vec<LayerSpec>> {
        let sizes =
            [("vocab", self.vocab), ("dim", self.dim), ("layers", self.layers), ("context", self.context)];
        check_positive(&sizes)?;
        Attention::new("", self.dim, self.heads)?;
        Dropout::new("", self.dropout, self.seed)?;
        let gpt = *self;
        let dim = self.dim;
        let dropout = (self.dropout > 0.0).then_some(Part::Dropout);
        let block = |inner: &[Part]| {
            let mut parts = [&[Part::Norm(dim, 2)], inner].concat();
            parts.extend(dropout.into_iter().chain([Part::Residual]));
            parts
        };
        let linear = |sizes| Part::Linear(sizes, Layout::InOut, true);
        let heads = Heads { query: self.heads, key_value: self.heads, width: dim / self.heads };
        let attend = Part::Attention(heads, self.context);
        let of_attention = block(&[linear([dim, 3 * dim]), attend, linear([dim, dim])]);
        let of_mlp = block(&[linear([dim, 4 * dim]), Part::Gelu, linear([4 * dim, dim])]);
        let table = Part::Embedding([self.vocab, self.context], dim);
        let of_embed = [table].into_iter().chain(dropout).collect();
        let mut units =
            vec![LayerSpec::of_divided_parts("embed", of_embed, move |sharding| gpt.embed(sharding))];
        for index in 0..self.layers {
            let (attention, mlp) = (format!("h.{index}.attn"), format!("h.{index}.mlp"));
            let parts = of_attention.clone();
            units.push(LayerSpec::of_divided_parts(attention, parts, move |sharding| {
                gpt.attention(index, sharding)
            }));
            units.push(LayerSpec::of_divided_parts(mlp, of_mlp.clone(), move |sharding| {
                gpt.mlp(index, sharding)
            }));
        }
        Ok(units)
    }

    fn embed(self, sharding: Sharding) -> Result<Vec<Box<dyn Layer>>> {
        let table = Embedding::new("embed", self.vocab, self.context, self.dim, self.seed);
        let table = table.divided(sharding)?;
        let mut layers = chain![table];
        self.push_dropout(&mut layers, "embed")?;
        Ok(layers)
    }

    fn attention(self, index: usize, sharding: Sharding) -> Result<Vec<Box<dyn Layer>>> {
        let (name, dim) = (format!("h.{index}.attn"), self.dim);
        let head = dim / self.heads;
        let norm = LayerNorm::new(&format!("h.{index}.ln_1"), dim).divided(sharding);
        let qkv = self.linear(&format!("{name}.c_attn"), [dim, 3 * dim], DEVIATION);
        let qkv = qkv.with_divided_outputs(&Division::new(sharding, self.heads, &[head; 3])?);
        let out = self.linear(&format!("{name}.c_proj"), [dim, dim], self.residual_deviation());
        let out = out.with_divided_inputs(&Division::new(sharding, self.heads, &[head])?);
        let heads = Division::new(sharding, self.heads, &[1])?.len();
        let attend = Attention::new(&name, heads * head, heads)?;
        let mut layers = chain![Recomputed::new(norm, qkv), attend, out];
        self.push_dropout(&mut layers, &name)?;
        Ok(chain![Block::residual(&name, layers)])
    }

    fn mlp(self, index: usize, sharding: Sharding) -> Result<Vec<Box<dyn Layer>>> {
        let (name, dim) = (format!("h.{index}.mlp"), self.dim);
        let hidden = Division::new(sharding, 4 * dim, &[1])?;
        let norm = LayerNorm::new(&format!("h.{index}.ln_2"), dim).divided(sharding);
        let wide = self.linear(&format!("{name}.c_fc"), [dim, 4 * dim], DEVIATION);
        let mut wide = wide.with_divided_outputs(&hidden);
        let gelu = Gelu::new(&name, GeluForm::Tanh).after(&mut wide);
        let out = self.linear(&format!("{name}.c_proj"), [4 * dim, dim], self.residual_deviation());
        let out = out.with_divided_inputs(&hidden);
        let mut layers = chain![Recomputed::new(norm, wide), Recomputed::new(gelu, out)];
        self.push_dropout(&mut layers, &name)?;
        Ok(chain![Block::residual(&name, layers)])
    }

    fn head(self, sharding: Sharding) -> Result<Vec<Box<dyn Layer>>> {
        let init = Init::Normal(DEVIATION);
        let mut head = Linear::new("lm_head", [self.dim, self.vocab], init, self.seed).without_bias();
        if self.tied {
            let dims = [self.vocab, self.dim];
            head = head.with_weight(Parameter::new("wte.weight", &dims, init, self.seed).tied())?;
        }
        let head = head.with_divided_outputs(&Division::new(sharding, self.vocab, &[1])?);
        Ok(chain![Recomputed::new(LayerNorm::new("ln_f", self.dim).divided(sharding), head)])
    }

    fn linear(self, name: &str, sizes: [usize; 2], deviation: f32) -> Linear {
        Linear::new(name, sizes, Init::Normal(deviation), self.seed).with_layout(Layout::InOut)
    }

    /// The standard deviation for projections that add to the residual stream. There are `2 * layers` of
    /// them; with this deviation their sum starts as wide as one projection would.
    fn residual_deviation(self) -> f32 {
        DEVIATION / (2.0 * self.layers as f32).sqrt()
    }

    fn push_dropout(self, layers: &mut Vec<Box<dyn Layer>>, name: &str) -> Result<()> {
        if self.dropout > 0.0 {
            layers.push(Box::new(Dropout::new(&format!("{name}.dropout"), self.dropout, self.seed)?));
        }
        Ok(())
    }
}
