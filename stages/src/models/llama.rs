//! Llama and its kin. Touvron et al., "LLaMA: open and efficient foundation language models" (2023).

use super::model::{LayerSpec, Model};
use super::part::Part;
use super::reward;
use crate::chain;
use crate::error::{Result, check_positive};
use crate::layers::{
    Attention, Block, Embedding, Experts, GateForm, Gated, HeadNorm, Heads, Layout, Linear, Recomputed,
    RmsNorm, Rope, Rotary, Routing,
};
use crate::parameter::Parameter;
use crate::parameter::init::Init;
use crate::shards::{Division, Sharding};
use crate::stage::layer::Layer;

/// How weights start.
const INIT: Init = Init::Normal(0.02);

/// A Llama, a Mistral, a Mixtral, a Qwen-2 or a Qwen-3: ids `[batch, time]` to logits `[batch, time, vocab]`.
///
/// Its blocks have RMSNorm, rotary positions, attention with grouped key/value heads, and SwiGLU. Queries,
/// keys and values are one product, and so are gate and up. Parameters: `wte.weight`; of each block
/// `ln_1.weight`, `attn.qkv.weight`, `attn.out.weight`, `ln_2.weight`, `mlp.gate_up.weight`,
/// `mlp.down.weight` behind `h.0.` and so on; `ln_f.weight`; and `lm_head.weight` unless it is tied. With
/// experts, a block has `mlp.router.weight`, and of each expert `mlp.experts.0.gate_up.weight` and
/// `mlp.experts.0.down.weight`, and so on. Units: `embed`, `h.0.attn`, `h.0.mlp`, ..., `head`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Llama {
    /// The number of different tokens.
    pub vocab: usize,
    /// The width of the model.
    pub dim: usize,
    /// The number of blocks.
    pub layers: usize,
    /// The heads of a block's attention. Together they need not be as wide as the model.
    pub heads: Heads,
    /// The width inside a block's second half, or inside each expert there.
    pub ffn: usize,
    /// The longest sequence that it is made for, in tokens.
    pub context: usize,
    /// How positions turn queries and keys.
    pub rope: Rope,
    /// What RMSNorm adds to the mean of squares.
    pub epsilon: f32,
    /// Whether the output projection uses the weights of the token embedding.
    pub tied: bool,
    /// A token whose vector has no gradient from the embedding: `padding_idx` of PyTorch, which transformers
    /// sets to the padding token. A stage with a number that is not below `vocab` cannot be built.
    pub padding: Option<u32>,
    /// Whether queries, keys and values have a bias, `attn.qkv.bias`, as in Qwen-2.
    pub bias: bool,
    /// Whether queries and keys are normalised, by `attn.q_norm.weight` and `attn.k_norm.weight`, as in
    /// Qwen-3.
    pub head_norms: bool,
    /// How many tokens a token sees, itself included, as in Mistral. `None`: all before it.
    pub window: Option<usize>,
    /// The experts of a block's second half, as in Mixtral. `None`: it is one MLP.
    pub experts: Option<Routing>,
    /// The seed of the starting weights.
    pub seed: u64,
}

impl Llama {
    /// The model, not yet split.
    ///
    /// # Errors
    /// When a size is 0, the key/value heads do not divide the query heads, the width of a head is odd, or a
    /// token cannot choose that number of experts.
    pub fn model(&self) -> Result<Model> {
        let llama = *self;
        let mut units = self.body()?;
        let parts = vec![Part::Norm(self.dim, 1), Part::Scores([self.dim, self.vocab], self.tied)];
        units.push(LayerSpec::of_divided_parts("head", parts, move |sharding| llama.head(sharding)));
        Ok(Model::new(units).with_settings(format!("{self:?}")))
    }

    /// The same as a reward model: ids `[batch, time]` to a number for each token, `[batch, time, 1]`. Its
    /// head has the weights `score.weight`, with the names and the start of Hugging Face's
    /// `LlamaForSequenceClassification`, and no scores of tokens. It is not divided among shards.
    ///
    /// # Errors
    /// As for [`Llama::model`].
    pub fn reward_model(&self) -> Result<Model> {
        let llama = *self;
        let mut units = self.body()?;
        let parts = vec![Part::Norm(self.dim, 1), reward::part(self.dim)];
        units.push(LayerSpec::of_parts("head", parts, move || {
            let score = reward::layer(llama.dim, INIT, llama.seed)?;
            Ok(chain![Recomputed::new(llama.norm("ln_f"), score)])
        }));
        Ok(Model::new(units).with_settings(format!("{self:?}, rewards")))
    }

    /// All units but the head.
    fn body(&self) -> Result<Vec<LayerSpec>> {
        let sizes = [
            ("vocab", self.vocab),
            ("dim", self.dim),
            ("layers", self.layers),
            ("ffn", self.ffn),
            ("context", self.context),
        ];
        check_positive(&sizes)?;
        self.experts.map_or(Ok(()), Routing::check)?;
        Rotary::new("", self.heads, self.rope)?;
        Attention::grouped("", self.heads, self.window)?;
        let llama = *self;
        let (dim, heads) = (self.dim, self.heads);
        let (norm, product) = (Part::Norm(dim, 1), |sizes| Part::Linear(sizes, Layout::OutIn, false));
        let seen = self.window.unwrap_or(self.context).min(self.context);
        let mut of_attention = vec![
            norm,
            Part::Linear([dim, heads.row()], Layout::OutIn, self.bias),
            Part::Rotary(heads),
            Part::Attention(heads, seen),
            product([heads.query * heads.width, dim]),
            Part::Residual,
        ];
        if self.head_norms {
            of_attention.insert(2, Part::HeadNorm(heads));
        }
        let (wide, down) = (product([dim, 2 * self.ffn]), product([self.ffn, dim]));
        let of_mlp = match self.experts {
            Some(routing) => vec![norm, Part::Experts([dim, self.ffn], routing), Part::Residual],
            None => vec![norm, wide, Part::Gated, down, Part::Residual],
        };
        let of_embed = vec![Part::Embedding([self.vocab, 0], dim)];
        let mut units =
            vec![LayerSpec::of_divided_parts("embed", of_embed, move |sharding| llama.embed(sharding))];
        for index in 0..self.layers {
            let (attention, mlp) = (format!("h.{index}.attn"), format!("h.{index}.mlp"));
            let parts = of_attention.clone();
            units.push(LayerSpec::of_divided_parts(attention, parts, move |sharding| {
                llama.attention(index, sharding)
            }));
            units.push(LayerSpec::of_divided_parts(mlp, of_mlp.clone(), move |sharding| {
                llama.mlp(index, sharding)
            }));
        }
        Ok(units)
    }

    fn embed(self, sharding: Sharding) -> Result<Vec<Box<dyn Layer>>> {
        let table = Embedding::of_tokens("embed", "wte.weight", self.vocab, self.dim, INIT, self.seed);
        let table = table.divided(sharding)?;
        Ok(chain![match self.padding {
            Some(token) => table.with_padding(token)?,
            None => table,
        }])
    }

    fn attention(self, index: usize, sharding: Sharding) -> Result<Vec<Box<dyn Layer>>> {
        let (name, heads) = (format!("h.{index}.attn"), self.heads);
        let queries = heads.query / heads.key_value * heads.width;
        let keys = Division::new(sharding, heads.key_value, &[1])?.len();
        let own = Heads { query: heads.query / heads.key_value * keys, key_value: keys, ..heads };
        let divided = |widths: &[usize]| Division::new(sharding, heads.key_value, widths);
        let out = self.linear(&format!("{name}.out"), [heads.query * heads.width, self.dim]);
        let qkv = self.qkv(&name).with_divided_outputs(&divided(&[queries, heads.width, heads.width])?);
        let mut inner = chain![
            Recomputed::new(self.norm(&format!("h.{index}.ln_1")).divided(sharding), qkv),
            Rotary::new(&name, own, self.rope)?,
            Attention::grouped(&name, own, self.window)?,
            out.without_bias().with_divided_inputs(&divided(&[queries])?),
        ];
        if self.head_norms {
            inner.insert(1, Box::new(HeadNorm::new(&name, own, self.epsilon).divided(&divided(&[1])?)));
        }
        Ok(chain![Block::residual(&name, inner)])
    }

    fn mlp(self, index: usize, sharding: Sharding) -> Result<Vec<Box<dyn Layer>>> {
        let (name, norm) = (format!("h.{index}.mlp"), self.norm(&format!("h.{index}.ln_2")));
        let norm = norm.divided(sharding);
        let inner = match self.experts {
            Some(routing) => chain![norm, self.choosing(&name, routing, sharding)?],
            None => {
                let divided = |widths: &[usize]| Division::new(sharding, self.ffn, widths);
                let gate_up = self.gate_up(&name).with_divided_outputs(&divided(&[1, 1])?);
                chain![Recomputed::new(norm, gate_up), self.down(&name, &divided(&[1])?)]
            }
        };
        Ok(chain![Block::residual(&name, inner)])
    }

    fn head(self, sharding: Sharding) -> Result<Vec<Box<dyn Layer>>> {
        let mut head = self.linear("lm_head", [self.dim, self.vocab]).without_bias();
        if self.tied {
            let dims = [self.vocab, self.dim];
            head = head.with_weight(Parameter::new("wte.weight", &dims, INIT, self.seed).tied())?;
        }
        let head = head.with_divided_outputs(&Division::new(sharding, self.vocab, &[1])?);
        Ok(chain![Recomputed::new(self.norm("ln_f").divided(sharding), head)])
    }

    /// Queries, keys and values as one product.
    fn qkv(self, name: &str) -> Linear {
        let heads = self.heads;
        let (queries, keys) = (heads.query * heads.width, heads.key_value * heads.width);
        let part = |which: &str, width| (format!("{name}.{which}"), width);
        let qkv = self.linear(&format!("{name}.qkv"), [self.dim, self.heads.row()]).with_parts([
            part("q", queries),
            part("k", keys),
            part("v", keys),
        ]);
        match self.bias {
            true => qkv,
            false => qkv.without_bias(),
        }
    }

    /// Gate and up as one product.
    fn gate_up(self, name: &str) -> Linear {
        let part = |which: &str| (format!("{name}.{which}"), self.ffn);
        let gate_up = self.linear(&format!("{name}.gate_up"), [self.dim, 2 * self.ffn]);
        gate_up.with_parts([part("gate"), part("up")]).without_bias()
    }

    /// The gate, and the product after it.
    fn down(self, name: &str, hidden: &Division) -> Recomputed<Gated> {
        let down = self.linear(&format!("{name}.down"), [self.ffn, self.dim]).without_bias();
        Recomputed::new(Gated::new(name, GateForm::Silu), down.with_divided_inputs(hidden))
    }

    fn choosing(self, name: &str, routing: Routing, sharding: Sharding) -> Result<Experts> {
        Experts::divided(name, [self.dim, self.ffn], routing, sharding, INIT, self.seed)
    }

    fn norm(self, name: &str) -> RmsNorm {
        RmsNorm::new(name, self.dim, self.epsilon)
    }

    fn linear(self, name: &str, sizes: [usize; 2]) -> Linear {
        Linear::new(name, sizes, INIT, self.seed)
    }
}
