use super::*;

#[test]
fn any_machine_has_a_cpu_and_is_told_what_it_lacks() {
    let machine = Machine::new();
    let table = machine.devices();
    assert!(table.starts_with("cpu     "), "{table}");
    for library in ["CUDA driver", "NVRTC", "cuBLASLt", "NCCL"] {
        assert!(table.contains(&format!("\n{library} ")), "{table}");
    }
    let json = machine.json();
    assert!(json["cpu"]["threads"].as_u64() >= Some(1));
    assert_eq!(
        json["gpus"].as_array().unwrap().is_empty(),
        json["no_gpu"].is_string(),
        "{json}"
    );
    let libraries = json["libraries"].as_array().unwrap();
    assert_eq!(libraries.len(), 4);
    for library in libraries.iter().filter(|library| library["version"].is_null()) {
        assert!(
            library["path"].is_null() && library["problem"].is_string(),
            "{json}"
        );
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
        assert!(
            line.contains(version) && line.ends_with(file.to_str().unwrap()),
            "{table}"
        );
    }
    let json = machine.json();
    let gpu = &json["gpus"][0];
    assert_eq!(gpu["device"], "cuda:0");
    assert_eq!(gpu["memory_free"], 12_u64 << 30);
    assert_eq!(
        (&gpu["bf16"], &gpu["problem"]),
        (&Value::Bool(true), &Value::Null)
    );
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
    assert!(
        said.contains("CUDA 12.4; CUDA 13.0 or newer is needed") && said.contains("driver 580 or newer"),
        "{said}"
    );
}

#[test]
fn a_driver_without_a_gpu_or_that_fails_is_told() {
    let said = of_driver(&["DRIVER=13000", "INIT=100", "MAJOR=9"]);
    assert!(said.contains("the CUDA driver is there and has no GPU"), "{said}");
    let said = of_driver(&["DRIVER=13000", "INIT=999", "MAJOR=9"]);
    assert!(said.contains("starting CUDA: CUDA_ERROR, refused"), "{said}");
}

#[test]
fn a_gpu_that_the_kernels_do_not_run_on_is_told() {
    let said = of_driver(&["DRIVER=13000", "INIT=0", "MAJOR=7"]);
    let problem = "cuda:0 has compute capability 7.0, and the kernels need 8.0 (Ampere) or newer";
    assert!(said.ends_with(problem), "{said}");
}

#[test]
fn wrong_arguments_are_refused() {
    let said = Machine::new().run(&["devices", "--format", "xml"]).refused();
    assert!(said.contains("[possible values: table, json]"), "{said}");
}
