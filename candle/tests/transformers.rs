//! A model of `candle-transformers`, cut at its own blocks, trains with the losses of the whole one: the
//! decoder of Stable Diffusion's autoencoder, small.

use std::sync::Arc;

use candle_core::Tensor as Candle;
use candle_nn::{Conv2dConfig, Module, VarBuilder, conv2d, group_norm};
use candle_transformers::models::stable_diffusion::unet_2d_blocks::{
    UNetMidBlock2D, UNetMidBlock2DConfig, UpDecoderBlock2D, UpDecoderBlock2DConfig,
};
use candle_transformers::models::stable_diffusion::vae::{AutoEncoderKL, AutoEncoderKLConfig};
use pipewright::data::DataSource;
use pipewright::id::MicroBatch;
use pipewright::schedule::Schedule;
use pipewright::stages::loss::MeanSquaredError;
use pipewright::stages::models::{LayerSpec, Model, Rules};
use pipewright::stages::optimizer::LearningRate;
use pipewright::stages::{Shape, Tensor, Training, rng};
use pipewright::{Pipeline, Result};
use pipewright_candle::unit;

const LATENT: usize = 4;
const CHANNELS: [usize; 2] = [4, 8];
const GROUPS: usize = 2;
const SEED: u64 = 1;

/// Random latents, and random images of twice their size.
struct Latents;

impl DataSource for Latents {
    fn micro_batch(&self, step: u64, micro_batch: MicroBatch) -> Result<(Tensor, Tensor)> {
        let random = |which, dims: &[usize]| {
            let mut numbers = vec![0.0; dims.iter().product()];
            rng::fill_normal([which, step as u32 * 100 + micro_batch.0], 1.0, &mut numbers);
            Tensor::from_vec(dims, numbers)
        };
        Ok((random(1, &[1, LATENT, 4, 4])?, random(2, &[1, 3, 8, 8])?))
    }

    fn shapes(&self) -> (Shape, Shape) {
        (Shape::f32(&[1, LATENT, 4, 4]), Shape::f32(&[1, 3, 8, 8]))
    }
}

/// The whole autoencoder in one layer. Only its decoder is trained.
fn whole() -> Model {
    let autoencoder = unit("vae", 1.0, SEED, |weights| {
        let config = AutoEncoderKLConfig {
            block_out_channels: CHANNELS.to_vec(),
            layers_per_block: 1,
            latent_channels: LATENT,
            norm_num_groups: GROUPS,
            use_quant_conv: true,
            use_post_quant_conv: true,
        };
        let autoencoder = AutoEncoderKL::new(weights, 3, 3, config)?;
        Ok(move |x: &Candle| autoencoder.decode(x))
    });
    let decoder_only = Rules::default().with_training(|name| Training {
        frozen: name.starts_with("vae.encoder") || name.starts_with("vae.quant"),
        ..Training::default()
    });
    Model::new(vec![autoencoder]).with_rules(decoder_only)
}

fn conv(name: &str, [inputs, outputs]: [usize; 2], kernel: usize) -> LayerSpec {
    let config = Conv2dConfig { padding: kernel / 2, ..Conv2dConfig::default() };
    let build = move |weights: VarBuilder<'static>| conv2d(inputs, outputs, kernel, config, weights);
    unit(name, 1.0, SEED, build)
}

fn up_block(name: &str, [inputs, outputs]: [usize; 2], add_upsample: bool) -> LayerSpec {
    let config = UpDecoderBlock2DConfig {
        num_layers: 2,
        resnet_groups: GROUPS,
        add_upsample,
        ..UpDecoderBlock2DConfig::default()
    };
    unit(name, 4.0, SEED, move |weights| UpDecoderBlock2D::new(weights, inputs, outputs, config))
}

/// The decoder in units. Each has the name that its weights have in the whole.
fn cut() -> Model {
    let [narrow, wide] = CHANNELS;
    let middle = unit("vae.decoder.mid_block", 4.0, SEED, move |weights| {
        let config = UNetMidBlock2DConfig {
            resnet_groups: Some(GROUPS),
            attn_num_head_channels: None,
            ..UNetMidBlock2DConfig::default()
        };
        let block = UNetMidBlock2D::new(weights, wide, None, config)?;
        Ok(move |x: &Candle| block.forward(x, None))
    });
    let norm = unit("vae.decoder.conv_norm_out", 1.0, SEED, move |weights| {
        let norm = group_norm(GROUPS, narrow, 1e-6, weights)?;
        Ok(move |x: &Candle| candle_nn::ops::silu(&norm.forward(x)?))
    });
    Model::new(vec![
        conv("vae.post_quant_conv", [LATENT, LATENT], 1),
        conv("vae.decoder.conv_in", [LATENT, wide], 3),
        middle,
        up_block("vae.decoder.up_blocks.0", [wide, wide], true),
        up_block("vae.decoder.up_blocks.1", [wide, narrow], false),
        norm,
        conv("vae.decoder.conv_out", [narrow, 3], 3),
    ])
}

fn losses(model: Model, stages: u32, schedule: &str) -> Vec<f64> {
    let mut pipeline = Pipeline::builder()
        .schedule(Schedule::named(schedule, stages, 3).expect("the sizes fit"))
        .stages(model.split(stages).expect("it can be cut"))
        .loss(MeanSquaredError::default())
        .data(Arc::new(Latents))
        .learning_rate(LearningRate::Constant(0.01))
        .pin(false)
        .launch()
        .expect("it starts");
    let step = |_| pipeline.step().expect("the step succeeds").loss;
    (0..4).map(step).collect()
}

#[test]
fn a_decoder_of_stable_diffusion_trains_in_2_and_3_stages_with_the_losses_of_the_whole() {
    let expected = losses(whole(), 1, "1f1b");
    assert!(expected[3] < expected[0], "it learns: {expected:?}");
    for (stages, schedule) in [(1, "1f1b"), (2, "1f1b"), (3, "gpipe"), (3, "zb-h1")] {
        assert_eq!(losses(cut(), stages, schedule), expected, "{stages} stages, {schedule}");
    }
}
