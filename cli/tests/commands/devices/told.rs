use super::*;

#[test]
fn any_machine_has_a_cpu_and_is_told_what_it_lacks() {
    let machine = Machine::new();
    let table = machine.devices();
    assert!(table.starts_with("cpu     "), "{table}");
    for library in ["CUDA driver", "NVRTC", "cuBLASLt", "NCCL"] {
        has(&table, &[&format!("\n{library} ")]);
    }
    let json = machine.json();
    assert!(json["cpu"]["threads"].as_u64() >= Some(1));
    assert_eq!(json["gpus"].as_array().unwrap().is_empty(), json["no_gpu"].is_string(), "{json}");
    let libraries = json["libraries"].as_array().unwrap();
    assert_eq!(libraries.len(), 4);
    for library in libraries.iter().filter(|library| library["version"].is_null()) {
        assert!(library["path"].is_null() && library["problem"].is_string(), "{json}");
    }
    let packages = json["packages"].as_array().unwrap().iter();
    let packages: Vec<_> = packages.map(|package| package.as_str().unwrap()).collect();
    assert_eq!(
        !packages.is_empty(),
        table.contains(&format!("  pip install {}", packages.join(" "))),
        "{table}"
    );
}

#[test]
fn a_machine_with_all_of_cuda_lacks_nothing() {
    let machine = Machine::new().with("LD_LIBRARY_PATH", "cuda");
    let recipes = [DRIVER, NVRTC, CUBLASLT, ("libnccl.so", NCCL.1)];
    let files = recipes.map(|recipe| machine.install("cuda", recipe));
    let table = machine.devices();
    let gpu =
        "cuda:0  Stand-in, compute capability 9.0, 16.00 GiB, 12.00 GiB free: f32, bf16, fused attention\n";
    assert!(table.contains(gpu) && !table.contains("To use GPUs"), "{table}");
    let versions = ["13.0 ", "13.0 ", "13.1.0 ", "2.28.9 "];
    for (line, (version, file)) in table.lines().skip(4).zip(versions.iter().zip(&files)) {
        assert!(line.contains(version) && line.ends_with(file.to_str().unwrap()), "{table}");
    }
    let json = machine.json();
    let gpu = &json["gpus"][0];
    assert_eq!(gpu["device"], "cuda:0");
    assert_eq!(gpu["memory_free"], 12_u64 << 30);
    assert_eq!((&gpu["bf16"], &gpu["problem"]), (&Value::Bool(true), &Value::Null));
    assert_eq!(json["library_path"], machine.path("cuda").to_str().unwrap());
}

/// What is said of the GPUs with this driver.
fn of_driver(macros: &[&str]) -> String {
    let machine = Machine::new().with("LD_LIBRARY_PATH", "cuda");
    machine.install("cuda", (DRIVER.0, macros));
    machine.devices().lines().nth(1).unwrap().to_owned()
}

#[test]
fn a_driver_that_is_too_old_is_told_with_both_versions() {
    let said = of_driver(&["DRIVER=12040", "INIT=0", "MAJOR=9"]);
    has(&said, &["CUDA 12.4; CUDA 13.0 or newer is needed", "driver 580 or newer"]);
}

#[test]
fn a_driver_without_a_gpu_or_that_fails_is_told() {
    has(&of_driver(&["DRIVER=13000", "INIT=100", "MAJOR=9"]), &["the CUDA driver is there and has no GPU"]);
    has(&of_driver(&["DRIVER=13000", "INIT=999", "MAJOR=9"]), &["starting CUDA: CUDA_ERROR, refused"]);
}

#[test]
fn a_gpu_that_the_kernels_do_not_run_on_is_told() {
    let said = of_driver(&["DRIVER=13000", "INIT=0", "MAJOR=7"]);
    let problem = "cuda:0 has compute capability 7.0, and the kernels need 8.0 (Ampere) or newer";
    assert!(said.ends_with(problem), "{said}");
}

#[test]
fn emulated_gpus_are_shown_like_others() {
    let emulator::Cuda::Emulated(folder) = emulator::start() else {
        return;
    };
    let mut machine = Machine::new();
    machine.variables.push(("LD_LIBRARY_PATH", folder.clone()));
    let table = machine.devices();
    let mut gpus = table.lines().filter(|line| line.starts_with("cuda:"));
    let first = gpus.next().unwrap();
    assert!(first.starts_with("cuda:0  ") && first.ends_with(" free: f32, bf16, fused attention"), "{table}");
    machine.variables.push(("PIPEWRIGHT_EMULATOR_DEVICES", "0".into()));
    has(&machine.devices(), &["\nno GPU  the CUDA driver is there and has no GPU"]);
}

#[test]
fn copies_between_gpus_are_measured_and_those_that_are_not_direct_are_told() {
    let emulator::Cuda::Emulated(folder) = emulator::start() else {
        return;
    };
    let mut machine = Machine::new();
    machine.variables.push(("LD_LIBRARY_PATH", folder.clone()));
    machine.variables.push(("PIPEWRIGHT_EMULATOR_DEVICES", "2".into()));
    let of = |table: &str, word: &str| table.contains(word);
    let table = machine.devices();
    assert!(of(&table, "copies in GB/s") && !of(&table, "* not direct"), "{table}");
    let copies = &machine.json()["copies"];
    assert_eq!(copies.as_array().unwrap().len(), 2);
    assert_eq!(
        (&copies[0]["from"], &copies[0]["to"], &copies[0]["direct"]),
        (&"cuda:0".into(), &"cuda:1".into(), &true.into()),
    );
    assert!(copies[1]["bytes_per_second"].as_f64().unwrap() > 0.0);
    machine.variables.push(("PIPEWRIGHT_EMULATOR_PEERS", "0".into()));
    assert!(of(&machine.devices(), "* not direct"));
    assert_eq!(machine.json()["copies"][0]["direct"], false);
    let small = (16 << 20).to_string();
    machine.variables.push(("PIPEWRIGHT_EMULATOR_MEMORY", small.into()));
    let table = machine.devices();
    let said = "? not measured; cuda:0 to cuda:1: out of memory on cuda:0: too little for timing a copy";
    assert!(of(&table, said), "{table}");
}

/// What `train` says of a GPU with this driver.
fn train_on(device: &str, driver: Recipe) -> String {
    let machine = Machine::new().with("LD_LIBRARY_PATH", "cuda");
    machine.install("cuda", driver);
    machine.write_config();
    let set = format!("pipeline.devices={device}");
    let said = machine.run(&["train", "my.toml", "--set", &set]).refused();
    assert!(!machine.path("runs").exists());
    said
}

#[test]
fn training_on_a_gpu_that_is_not_there_is_refused_before_anything_starts() {
    has(
        &train_on("cuda:3", DRIVER),
        &["rank 0) cannot be built on cuda:3: there is no cuda:3: CUDA sees cuda:0 (`pipewright devices`"],
    );
    let said = train_on("cuda:0", (DRIVER.0, &["DRIVER=12080", "INIT=0", "MAJOR=9"]));
    has(&said, &["CUDA 12.8; CUDA 13.0 or newer is needed"]);
    let said = train_on("cuda:0", (DRIVER.0, &["DRIVER=13000", "INIT=0", "MAJOR=7"]));
    has(&said, &["the kernels need 8.0 (Ampere) or newer"]);
}

const ON_GPU: [&str; 4] = ["train", "my.toml", "--set", "pipeline.devices=cuda:0"];

#[test]
fn a_run_says_its_gpus_and_that_heads_have_no_fused_attention() {
    let Some(machine) = emulated() else { return };
    let args = ["--set", "pipeline.dtype=bf16", "--steps", "1"];
    has(
        &machine.run(&[&ON_GPU[..], &args].concat()).done().stdout(),
        &[
            "\ndevices   cuda:0 in bf16; heads of width ",
            " take the plain attention kernels, which are slow: there are fused ones for 64, 80, ",
        ],
    );
    let sizes = ["--set", "model.vocab=257", "--set", "model.dim=128", "--run-dir", "sizes"];
    let said = machine.run(&[&ON_GPU[..], &args, &sizes].concat()).done().stdout();
    let line = "\ndevices   cuda:0 in bf16; a vocabulary of 257 is slow, \
                because scores are read 8 at a time: model.vocab=320 is faster\n";
    has(&said, &[line]);
    let said = machine.run(&[&ON_GPU[..], &["--run-dir", "f32", "--steps", "1"]].concat());
    has(&said.done().stdout(), &["\ndevices   cuda:0 in f32\n"]);
}

#[test]
fn too_little_memory_for_weights_is_told_before_anything_starts() {
    let Some(mut machine) = emulated() else { return };
    // The memory is only enough for one rank's workspace for matrix products, so the second rank to start
    // gets none.
    let memory = (32 << 20) + 4096;
    machine.variables.push(("PIPEWRIGHT_EMULATOR_MEMORY", memory.to_string().into()));
    has(
        &machine.run(&ON_GPU).refused(),
        &[
            "cannot be built on cuda:0: ",
            "out of memory on cuda:0: ",
            "what stays with each stage (weights, their gradients, the optimizer's state, room for \
                 matrix products) needs less on each of more devices",
        ],
    );
    assert!(!machine.path("runs").exists());
}

#[test]
fn wrong_arguments_are_refused() {
    has(&Machine::new().run(&["devices", "--format", "xml"]).refused(), &["[possible values: table, json]"]);
}
