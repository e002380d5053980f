//! Losses with keys of `config.json` in every place where they can stand are the same as in transformers.
//!
//! Each loss is the loss of a family's first batch with a changed `config.json`, by
//! `AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")` of transformers 5.24.

use super::*;

/// The mean loss of a family's first batch with the model of a folder.
fn loss(family: &str, folder: &Path) -> f64 {
    let (_, mut builders) = stages(folder, 1, 1);
    let mut model = builders.remove(0).build().expect("its weights are read");
    let data = Golden::read(family).batches();
    let mut losses = Vec::new();
    for micro_batch in 0..4 {
        let (input, target) = data.micro_batch(0, MicroBatch(micro_batch)).expect("recorded");
        let at = ForwardContext { step: 0, micro_batch, mode: Mode::Evaluate };
        let (output, _) = model.forward(at, input).expect("it computes");
        let vocab = output.dims()[2];
        for (scores, &right) in output.f32().chunks(vocab).zip(target.ids()) {
            let sum: f64 = scores.iter().map(|&score| f64::from(score).exp()).sum();
            losses.push(sum.ln() - f64::from(scores[right as usize]));
        }
    }
    losses.iter().sum::<f64>() / losses.len() as f64
}

#[test]
fn losses_are_those_of_transformers_wherever_a_key_stands() {
    let linear = json!({"rope_type": "linear", "factor": 4.0});
    let plain = json!({"rope_type": "default", "rope_theta": 100.0});
    let llama3 = json!({
        "rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0
    });
    let yarn = json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 10_000});
    let yarn_with = |key: &str, value: f64| {
        let mut yarn = yarn.clone();
        yarn[key] = json!(value);
        yarn
    };
    let mut scales = yarn_with("mscale", 1.0);
    scales["mscale_all_dim"] = json!(0.5);
    let mut turns = yarn_with("beta_fast", 100.0);
    turns["beta_slow"] = json!(2.0);
    let all_slide = ["sliding_attention", "sliding_attention"];
    for (family, changes, expected) in [
        ("llama", json!({}), 4.552317932712485),
        ("llama", json!({"rope_theta": 100.0, "rope_parameters": null}), 4.553066329512563),
        ("llama", json!({"rope_theta": 100.0}), 4.552317932712485),
        ("llama", json!({"rope_parameters": plain}), 4.553066329512563),
        ("llama", json!({"rope_theta": 50.0, "rope_parameters": linear}), 4.551490037048436),
        (
            "llama",
            json!({"rope_scaling": {"type": "linear", "factor": 4.0}, "rope_parameters": null}),
            4.5514644044295425,
        ),
        ("llama", json!({"rope_parameters": plain, "rope_scaling": linear}), 4.5514644044295425),
        ("llama", json!({"rope_parameters": plain, "rope_scaling": {}}), 4.553066329512563),
        (
            "llama",
            json!({"rope_scaling": {"rope_type": "linear", "type": "dynamic", "factor": 4.0}}),
            4.5514644044295425,
        ),
        ("llama3", json!({"original_max_position_embeddings": 8}), 4.587497336834062),
        ("llama3", json!({"max_position_embeddings": 32, "rope_parameters": llama3}), 4.587457176181719),
        ("llama", json!({"rope_scaling": yarn}), 4.551716304066898),
        ("llama", json!({"rope_parameters": yarn_with("rope_theta", 100.0)}), 4.552692884376647),
        ("llama", json!({"rope_scaling": yarn_with("attention_factor", 0.5)}), 4.553822195557097),
        ("llama", json!({"rope_scaling": turns}), 4.551712658733518),
        ("llama", json!({"rope_scaling": scales}), 4.552042982533954),
        ("llama", json!({"rope_scaling": {"type": "yarn", "factor": 4.0}}), 4.5517159631324775),
        ("llama", json!({"rope_scaling": yarn, "original_max_position_embeddings": 1000}), 4.55171241307487),
        ("llama", json!({"hidden_act": "swish"}), 4.552317932712485),
        ("mistral", json!({}), 4.6135367813783095),
        ("mistral", json!({"sliding_window": "null"}), 4.60626667212462),
        ("mistral", json!({"sliding_window": null}), 4.60626667212462),
        ("mistral", json!({"sliding_window": 3, "use_sliding_window": false}), 4.5958886960215395),
        ("mixtral", json!({"rope_parameters": null}), 4.499740637479029),
        ("mixtral", json!({"sliding_window": 3}), 4.546173487892835),
        (
            "qwen2",
            json!({
                "use_sliding_window": true, "sliding_window": 3, "max_window_layers": 0, "layer_types": null
            }),
            4.524710023647599,
        ),
        (
            "qwen2",
            json!({
                "use_sliding_window": true, "sliding_window": 3, "max_window_layers": 2, "layer_types": null
            }),
            4.532871469883608,
        ),
        (
            "qwen2",
            json!({"use_sliding_window": true, "sliding_window": 3, "layer_types": all_slide}),
            4.524710023647599,
        ),
        ("qwen2", json!({"use_sliding_window": false, "sliding_window": 3}), 4.532871469883608),
        (
            "qwen3",
            json!({
                "use_sliding_window": true, "sliding_window": 4, "max_window_layers": 0, "layer_types": null
            }),
            4.5602122166270425,
        ),
        (
            "gpt2",
            json!({"n_layer": 1, "num_hidden_layers": 2, "reorder_and_upcast_attn": true}),
            4.653286989877288,
        ),
    ] {
        let scratch = changed(family, &changes);
        let got = loss(family, scratch.path());
        let off = (got - expected).abs() / expected;
        assert!(off < 1e-6, "{family} with {changes}: {got}, not {expected}");
    }
}

#[test]
fn buffers_of_older_checkpoints_are_left_out() {
    let scratch = changed("gpt2", &json!({}));
    let file = scratch.path().join("model.safetensors");
    let bytes = fs::read(&file).expect("readable");
    let tensors = SafeTensors::deserialize(&bytes).expect("whole");
    let number = TensorView::new(Dtype::F32, vec![1], &[0; 4]).expect("a number");
    let names = [
        "transformer.h.0.attn.bias",
        "transformer.h.1.attn.masked_bias",
        "model.layers.0.self_attn.rotary_emb.inv_freq",
        "model.rotary_emb.inv_freq",
    ];
    let more = names.map(|name| (name.to_owned(), number.clone()));
    let all = tensors.tensors().into_iter().chain(more);
    fs::write(&file, safetensors::serialize(all, None).expect("serialised")).expect("written");
    assert!((loss("gpt2", scratch.path()) - 4.653286989877288).abs() < 1e-5);
}
