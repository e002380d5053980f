//! The section `[model]`, its keys and their defaults.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::key::{ABOVE_0, FROM_0, LAYERS, SEQUENCE, WIDTH, section};
use super::values::Sizes;
use pipewright::pretrained::Family;

/// The models of tokens.
const TOKENS: &[&str] = &["gpt", "llama", "mistral", "mixtral", "qwen2", "qwen3"];
/// Llama and its kin.
const LLAMAS: &[&str] = &["llama", "mistral", "mixtral", "qwen2", "qwen3"];
/// The models that may read tokens.
const OF_TOKENS: &[&str] = &["gpt", "llama", "mistral", "mixtral", "qwen2", "qwen3", "stack"];
/// The models of convolutions.
const CONVOLUTIONS: &[&str] = &["cnn", "resnet"];

const EXPERTS: usize = 1 << 16;

const SEEDS: &str = "it is for weights and dropout; data.seed is for the order of rows";

section! {
    /// `[model]`: what is trained.
    pub struct Model {
        /// What is trained: `"gpt"`, `"llama"` or one of its kin (`"mistral"`, `"mixtral"`, `"qwen2"`,
        /// `"qwen3"`); or of images: `"mlp"`, `"cnn"`, `"resnet"`; or `"stack"`: layers that are listed.
        kind: ModelKind = ModelKind::Gpt => [page("layers-in-config.md"), also("model_type type")],
        /// A folder of Hugging Face, or one that `export` has made. The starting weights, the other keys of
        /// this section and the tokenizer come from it, unless `kind` is given too.
        path: Option<PathBuf> = None => [
            page("hugging-face.md"), also("model_name_or_path pretrained_model_name_or_path name_or_path"),
        ],
        /// With `path`, models of tokens: how frozen matrices are stored. `"as it is"`: as in the folder;
        /// `"q8"` and `"q4"`: rounded to 8 and to 4 bits, but for the token embedding and the head.
        base: Base = Base::AsItIs => [
            only("kind", TOKENS), page("quantised.md"), also("quantization load_in_4bit load_in_8bit"),
        ],
        /// Models of tokens: how many tokens there are; 256 for bytes.
        vocab: usize = 256 => [
            only("kind", OF_TOKENS), positive, at_most(WIDTH, "tokens"), also("vocab_size"),
        ],
        /// Models of tokens: the width.
        dim: usize = 128 => [
            only("kind", TOKENS), positive, at_most(WIDTH, "numbers"),
            also("d_model embedding_dim hidden_dim hidden_size n_embd"),
        ],
        /// Models of tokens: the number of blocks.
        layers: usize = 4 => [
            only("kind", TOKENS), positive, at_most(LAYERS, "blocks"),
            also("n_layer n_layers num_hidden_layers num_layers"),
        ],
        /// Models of tokens: attention heads of a block; they divide `dim`, unless `head_width` is given.
        heads: usize = 4 => [
            only("kind", TOKENS), positive, at_most(WIDTH, "heads"),
            also("n_head n_heads num_attention_heads num_heads"),
        ],
        /// llama and its kin: heads for keys and values, which groups of `heads` share.
        kv_heads: Option<usize> = None => [
            only("kind", LLAMAS), positive, unset("`heads`"), also("n_kv_heads num_key_value_heads"),
        ],
        /// llama and its kin: the width of a head.
        head_width: Option<usize> = None => [
            only("kind", LLAMAS), positive, at_most(WIDTH, "numbers"), unset("`dim / heads`"),
            also("head_dim"),
        ],
        /// llama and its kin: the width inside of a block's second half, or of each expert.
        ffn: Option<usize> = None => [
            only("kind", LLAMAS), positive, at_most(WIDTH, "numbers"),
            unset("8/3 of `dim`, up to a multiple of 64"), also("intermediate_size"),
        ],
        /// Models of tokens: the longest sequence that the model is made for.
        context: Option<usize> = None => [
            only("kind", TOKENS), at_most(SEQUENCE, "tokens"), unset("`data.seq`"),
            also("max_position_embeddings"),
        ],
        /// llama and its kin: the base of the angles of positions.
        rope_theta: f64 = 10_000.0 => [only("kind", LLAMAS), within(ABOVE_0)],
        /// llama and its kin: how the angles are scaled: `"none"`, `"linear"`, `"llama3"` or `"yarn"`.
        rope_scaling: RopeScalingKind = RopeScalingKind::None => [only("kind", LLAMAS)],
        /// linear, llama3, yarn: how much longer sequences are.
        rope_factor: f64 = 8.0 => [only("rope_scaling", &["linear", "llama3", "yarn"]), within(ABOVE_0)],
        /// llama3: angles that turn less often in `rope_original` tokens are scaled.
        rope_low: f64 = 1.0 => [only("rope_scaling", &["llama3"]), within(ABOVE_0)],
        /// llama3: angles that turn more often in `rope_original` tokens stay.
        rope_high: f64 = 4.0 => [only("rope_scaling", &["llama3"]), within(ABOVE_0)],
        /// llama3, yarn: the longest sequence before the scaling, in tokens.
        rope_original: usize = 8192 => [only("rope_scaling", &["llama3", "yarn"]), positive],
        /// yarn: angles that turn more often in `rope_original` tokens stay.
        rope_fast: f64 = 32.0 => [only("rope_scaling", &["yarn"])],
        /// yarn: angles that turn less often in `rope_original` tokens are scaled.
        rope_slow: f64 = 1.0 => [only("rope_scaling", &["yarn"]), within(ABOVE_0)],
        /// yarn: what queries and keys are multiplied by.
        rope_attention: Option<f64> = None => [
            only("rope_scaling", &["yarn"]), within(ABOVE_0), unset("`0.1 ln(rope_factor) + 1`"),
        ],
        /// llama and its kin: what RMSNorm adds to the mean of squares.
        norm_epsilon: f64 = 1e-5 => [
            only("kind", LLAMAS), within(ABOVE_0), also("rms_norm_eps layer_norm_epsilon"),
        ],
        /// mixtral: the experts of a block.
        experts: usize = 8 => [
            only("kind", &["mixtral"]), positive, at_most(EXPERTS, "experts"), also("num_local_experts"),
        ],
        /// mixtral: how many of them compute a token.
        experts_per_token: usize = 2 => [only("kind", &["mixtral"]), positive, also("num_experts_per_tok")],
        /// mixtral: the coefficient of the loss that balances the experts; 0 for none. No reported loss
        /// contains it.
        auxiliary: f64 = 0.0 => [
            only("kind", &["mixtral"]), within(FROM_0), page("adapters.md#a-mixture-of-experts"),
            also("router_aux_loss_coef"),
        ],
        /// mistral, mixtral, qwen2, qwen3: how many tokens a token sees, itself included.
        window: Option<usize> = None => [
            only("kind", &["mistral", "mixtral", "qwen2", "qwen3"]), positive, also("sliding_window"),
        ],
        /// llama and its kin: a token whose vector the embedding does not train, as `pad_token_id` in
        /// transformers.
        padding_token: Option<u32> = None => [only("kind", LLAMAS), also("pad_token_id")],
        /// Models of tokens: whether the head's weight is the token embedding.
        tied: bool = false => [only("kind", TOKENS), also("tie_word_embeddings")],
        /// mlp: the widths, with input and output; a list, or text as `"784,128,10"`.
        sizes: Sizes = Sizes(vec![784, 128, 10]) => [only("kind", &["mlp"])],
        /// cnn, resnet, stack: height, width and channels of the images: `"28,28,1"` for idx, `"32,32,3"` for
        /// cifar10.
        image: Option<Sizes> = None => [only("kind", &["cnn", "resnet", "stack"]), unset("by `data.kind`")],
        /// cnn, resnet: the number of classes.
        classes: usize = 10 => [
            only("kind", CONVOLUTIONS), positive, at_most(WIDTH, "classes"), also("num_classes num_labels"),
        ],
        /// cnn: the outputs of each convolution; a pool after each halves the sides.
        channels: Sizes = Sizes(vec![32, 64]) => [only("kind", &["cnn"])],
        /// resnet: the blocks of each group; `"2,2,2,2"` is ResNet-18.
        blocks: Sizes = Sizes(vec![2, 2, 2, 2]) => [only("kind", &["resnet"])],
        /// resnet: the channels of the first group; each group has twice as many as the one before.
        width: usize = 64 => [only("kind", &["resnet"]), positive, at_most(WIDTH, "channels")],
        /// gpt, mlp: the probability of dropout, from 0 to below 1.
        dropout: f64 = 0.0 => [only("kind", &["gpt", "mlp"]), probability],
        /// The seed of the first weights and of dropout.
        seed: u64 = 1 => [noted(&[("seed random_seed", SEEDS)])],
        /// stack: the layers, each with a `kind` and its settings.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        stack: Vec<toml::Table> = Vec::new() => [only("kind", &["stack"]), page("layers-in-config.md")],
    }
}

/// How frozen matrices are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Base {
    /// As in the folder.
    #[serde(rename = "as it is")]
    AsItIs,
    /// In blocks of [`Quantisation::Q8_0`](pipewright::stages::Quantisation::Q8_0).
    #[serde(rename = "q8")]
    Q8,
    /// In blocks of [`Quantisation::Nf4`](pipewright::stages::Quantisation::Nf4).
    #[serde(rename = "q4")]
    Q4,
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
