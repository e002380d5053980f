//! The section `[model]`, its keys and their defaults.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::values::Sizes;
use pipewright::pretrained::Family;

/// `[model]`: what is trained.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Model {
    /// What is built: a GPT-2, a Llama or one of its kin, a multi-layer perceptron, or convolutions.
    pub kind: ModelKind,
    /// A folder in Hugging Face's form. The starting weights come from it, and so do all keys that its
    /// `config.json` decides, unless `kind` is given too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// Models of tokens: the number of different tokens; 256 for bytes.
    pub vocab: usize,
    /// Models of tokens: the width.
    pub dim: usize,
    /// Models of tokens: the number of blocks.
    pub layers: usize,
    /// Models of tokens: attention heads in a block. They divide `dim`, unless `head_width` is given.
    pub heads: usize,
    /// llama and its kin: heads for keys and values, which groups of `heads` share. Default: `heads`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_heads: Option<usize>,
    /// llama and its kin: the width of a head. Default: `dim / heads`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head_width: Option<usize>,
    /// llama and its kin: the width inside a block's second half, or inside each expert. Default: 8/3 of
    /// `dim`, rounded up to a multiple of 64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ffn: Option<usize>,
    /// Models of tokens: the longest sequence, in tokens. Default: `data.seq`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<usize>,
    /// llama and its kin: the base of the angles of positions.
    pub rope_theta: f64,
    /// llama and its kin: how these angles are scaled for longer sequences.
    pub rope_scaling: RopeScalingKind,
    /// linear, llama3, yarn: how much longer sequences are.
    pub rope_factor: f64,
    /// llama3: angles that turn less often than this in `rope_original` tokens are scaled.
    pub rope_low: f64,
    /// llama3: angles that turn more often than this in `rope_original` tokens stay.
    pub rope_high: f64,
    /// llama3, yarn: the longest sequence before the scaling, in tokens.
    pub rope_original: usize,
    /// yarn: angles that turn more often than this in `rope_original` tokens stay.
    pub rope_fast: f64,
    /// yarn: angles that turn less often than this in `rope_original` tokens are scaled.
    pub rope_slow: f64,
    /// yarn: what queries and keys are multiplied by. Default: `0.1 ln(rope_factor) + 1`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rope_attention: Option<f64>,
    /// llama and its kin: what RMSNorm adds to the mean of squares.
    pub norm_epsilon: f64,
    /// mixtral: the experts of a block.
    pub experts: usize,
    /// mixtral: how many of them compute a token.
    pub experts_per_token: usize,
    /// mixtral: the coefficient of the loss that balances the experts. 0: there is none. No reported loss
    /// contains it.
    pub auxiliary: f64,
    /// mistral, mixtral, qwen2, qwen3: how many tokens a token sees, itself included. Default: all before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<usize>,
    /// llama and its kin: a token whose vector the embedding does not train, as `pad_token_id` of
    /// transformers. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub padding_token: Option<u32>,
    /// Models of tokens: whether the output projection is the token embedding.
    pub tied: bool,
    /// mlp: the widths, input and output included.
    pub sizes: Sizes,
    /// cnn, resnet, stack: height, width and channels of the images. Default: as in MNIST or CIFAR-10, by
    /// `data.kind`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<Sizes>,
    /// cnn, resnet: the number of classes.
    pub classes: usize,
    /// cnn: the outputs of each convolution.
    pub channels: Sizes,
    /// resnet: the blocks of each group. 2, 2, 2, 2 is ResNet-18.
    pub blocks: Sizes,
    /// resnet: the channels of the first group. Each group has twice as many as the one before.
    pub width: usize,
    /// gpt, mlp: the probability of dropout, from 0 to below 1.
    pub dropout: f64,
    /// The seed of the starting weights and of dropout.
    pub seed: u64,
    /// stack: the layers. Each has a `kind`, and the settings of that kind.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stack: Vec<toml::Table>,
}

/// The models a config can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ModelKind {
    /// A GPT-2 over tokens.
    Gpt,
    /// A Llama.
    Llama,
    /// A Llama with a sliding window.
    Mistral,
    /// A Mistral with a mixture of experts.
    Mixtral,
    /// A Llama with biases on queries, keys and values.
    Qwen2,
    /// A Llama with norms of queries and keys.
    Qwen3,
    /// A multi-layer perceptron over images.
    Mlp,
    /// A small network of convolutions over images.
    Cnn,
    /// A residual network over images.
    Resnet,
    /// Layers that the config lists.
    Stack,
}

impl ModelKind {
    /// The family of a Llama or one of its kin.
    pub fn family(self) -> Option<Family> {
        match self {
            Self::Gpt | Self::Mlp | Self::Cnn | Self::Resnet | Self::Stack => None,
            Self::Llama => Some(Family::Llama),
            Self::Mistral => Some(Family::Mistral),
            Self::Mixtral => Some(Family::Mixtral),
            Self::Qwen2 => Some(Family::Qwen2),
            Self::Qwen3 => Some(Family::Qwen3),
        }
    }

    /// Whether it is made of convolutions.
    pub fn has_convolutions(self) -> bool {
        matches!(self, Self::Cnn | Self::Resnet)
    }

    /// Its name in a config.
    pub fn name(self) -> &'static str {
        match (self, self.family()) {
            (_, Some(family)) => family.name(),
            (Self::Mlp, _) => "mlp",
            (Self::Cnn, _) => "cnn",
            (Self::Resnet, _) => "resnet",
            (Self::Stack, _) => "stack",
            _ => "gpt",
        }
    }

    /// Whether it is a model of tokens.
    pub fn takes_tokens(self) -> bool {
        !matches!(self, Self::Mlp | Self::Cnn | Self::Resnet | Self::Stack)
    }
}

/// How a config can scale the angles of rotary positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RopeScalingKind {
    /// Not at all.
    None,
    /// All by one factor.
    Linear,
    /// As Llama-3.1: low frequencies by a factor.
    Llama3,
    /// YaRN: low frequencies by a factor, and all products of queries and keys.
    Yarn,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            kind: ModelKind::Gpt,
            path: None,
            vocab: 256,
            dim: 128,
            layers: 4,
            heads: 4,
            kv_heads: None,
            head_width: None,
            ffn: None,
            context: None,
            rope_theta: 10_000.0,
            rope_scaling: RopeScalingKind::None,
            rope_factor: 8.0,
            rope_low: 1.0,
            rope_high: 4.0,
            rope_original: 8192,
            rope_fast: 32.0,
            rope_slow: 1.0,
            rope_attention: None,
            norm_epsilon: 1e-5,
            experts: 8,
            experts_per_token: 2,
            auxiliary: 0.0,
            window: None,
            padding_token: None,
            tied: false,
            sizes: Sizes(vec![784, 128, 10]),
            image: None,
            classes: 10,
            channels: Sizes(vec![32, 64]),
            blocks: Sizes(vec![2, 2, 2, 2]),
            width: 64,
            dropout: 0.0,
            seed: 1,
            stack: Vec::new(),
        }
    }
}
