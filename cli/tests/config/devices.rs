use pipewright::stages::devices::bf16_products;
use pipewright::stages::{DType, Device, Place};

use super::*;

fn cuda(index: u32, dtype: DType) -> Place {
    Place { device: Device::Cuda(index), dtype }
}

#[test]
fn ranks_are_on_the_cpu_unless_said() {
    assert_eq!(compose::places(&parse("").unwrap(), 3).unwrap(), [Place::default(); 3]);
}

#[test]
fn one_device_is_for_all_ranks_and_a_list_for_each() {
    let config = parse("[pipeline]\nstages = 4\ndevices = 'cuda:1'").unwrap();
    assert_eq!(compose::places(&config, 4).unwrap(), [cuda(1, DType::F32); 4]);
    let config = parse("[pipeline]\nstages = 2\ndevices = ['cuda:0', 'cuda:3']\ndtype = 'bf16'").unwrap();
    assert_eq!(compose::places(&config, 2).unwrap(), [cuda(0, DType::Bf16), cuda(3, DType::Bf16)]);
}

#[test]
fn other_numbers_of_ranks_share_the_gpus_of_a_list() {
    let devices = |list: &str, ranks| {
        let config = parse(&format!("[pipeline]\nstages = 2\ndevices = {list}")).unwrap();
        let names: Vec<String> = config.pipeline.devices.shared_by(ranks).into();
        names.join(" ")
    };
    let two = "['cuda:2', 'cuda:0']";
    assert_eq!(devices(two, 1), "cuda:2");
    assert_eq!(devices(two, 2), "cuda:2 cuda:0");
    assert_eq!(devices(two, 3), "cuda:2 cuda:2 cuda:0");
    assert_eq!(devices(two, 4), "cuda:2 cuda:2 cuda:0 cuda:0");
    assert_eq!(devices("'cuda:1'", 4), "cuda:1");
    assert_eq!(devices("['cpu', 'cpu']", 4), "cpu");
}

#[test]
fn ranks_are_what_a_list_is_counted_by() {
    let text =
        "[pipeline]\nstages = 4\nschedule = 'interleaved-1f1b'\nchunks = 2\ndevices = ['cuda:0', 'cuda:1']";
    assert_eq!(compose::places(&parse(text).unwrap(), 2).unwrap().len(), 2);
    all_refused(&[(
        "[pipeline]\nstages = 4\n\ndevices = ['cuda:0', 'cuda:1']",
        &["my.toml:4: pipeline.devices: the list has 2, and there are 4 ranks: give one device for all, or \
             one for each"],
    )]);
    let error = compose::places(&parse("").unwrap(), 0);
    assert!(error.unwrap().is_empty());
}

#[test]
fn all_ranks_compute_in_the_same_numbers() {
    let config = parse("[pipeline]\nstages = 2\ndevices = ['cuda:0', 'cpu']\ndtype = 'bf16'").unwrap();
    let (device, dtype) = (Device::Cpu, DType::Bf16);
    assert_eq!(compose::places(&config, 2).unwrap(), [cuda(0, dtype), Place { device, dtype }]);
}

#[test]
fn a_run_in_bf16_says_how_the_cpu_multiplies() {
    let told = |sets: &[&str]| compose::describe_devices(&with_sets("", sets).unwrap());
    assert_eq!(told(&[]), None);
    let way = bf16_products();
    let expected = format!("cpu in bf16; products on the CPU {way}");
    assert_eq!(told(&["pipeline.dtype=bf16"]), Some(expected));
    let ways = ["by AMX", "by AVX-512-BF16", "in f32, which is slow: "];
    assert!(ways.iter().any(|known| way.starts_with(known)), "{way}");
}

#[test]
fn what_is_no_device_is_refused_with_the_entry() {
    all_refused(&[
        (
            "[pipeline]\n\ndevices = ['cpu', 'gpu']",
            &["my.toml:3: pipeline.devices: expected devices such as \"cpu\" and \"cuda:0\" \
                 (\"gpu\" is not one), got [\"cpu\", \"gpu\"]"],
        ),
        ("[pipeline]\ndevices = 'cuda:x'", &["pipeline.devices: ", "(\"cuda:x\" is not one)"]),
        ("[pipeline]\ndevices = []", &["pipeline.devices: expected one device at least"]),
        (
            "[pipeline]\ndevices = 0",
            &["pipeline.devices: expected devices such as \"cpu\" and \"cuda:0\", got 0"],
        ),
        (
            "[pipeline]\ndtype = 'f16'",
            &["pipeline.dtype: expected `f32` or `bf16`, got \"f16\": there is no f16: write"],
        ),
    ]);
}

#[test]
fn devices_can_be_set_without_quotes_from_anywhere() {
    let expected = [cuda(0, DType::Bf16), cuda(1, DType::Bf16)];
    for text in ["cuda:0,cuda:1", "cuda:0, cuda:1", "['cuda:0', 'cuda:1']"] {
        let variables = ["DEVICES", "DTYPE"].map(|key| format!("PIPEWRIGHT_PIPELINE__{key}"));
        let [devices, dtype] = variables;
        let environment = [(devices, text.to_owned()), (dtype, "bf16".to_owned())];
        let config = Config::parse("my.toml", "", &environment, &[]).unwrap();
        assert_eq!(compose::places(&config, 2).unwrap(), expected, "{text}");
        let set = format!("pipeline.devices={text}");
        let config = with_sets("", &[&set, "pipeline.dtype=bf16"]).unwrap();
        assert_eq!(compose::places(&config, 2).unwrap(), expected, "{text}");
    }
}

#[test]
fn a_resolved_config_has_both() {
    let config = parse("[pipeline]\ndevices = 'cuda'\ndtype = 'bf16'").unwrap();
    let resolved = config.resolved_toml().unwrap();
    has(&resolved, &["devices = [\"cuda:0\"]", "dtype = \"bf16\""]);
    let same = parse(&resolved).unwrap();
    assert_eq!(compose::places(&same, 2).unwrap(), compose::places(&config, 2).unwrap());
}

#[test]
fn a_run_goes_on_as_it_was_on_any_number_of_gpus_but_not_on_another_kind() {
    let of = |devices: &str| with_sets("", &[&format!("pipeline.devices={devices}")]).unwrap();
    let changes = |new: &str, old: &str| of(new).changes_from(&of(old)).unwrap();
    assert!(changes("cuda:0,cuda:1", "cuda:3").is_empty());
    let said = changes("cuda:0", "cpu");
    assert_eq!(said, ["pipeline.devices: [\"cpu\"] -> [\"cuda:0\"]"]);
    assert_eq!(changes("cuda:0,cpu", "cpu,cuda:0").len(), 1);
}
