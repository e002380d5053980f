use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

/// A machine whose loader finds libraries of CUDA 12 only.
fn with_old_ones() -> Machine {
    let machine = Machine::new().with("LD_LIBRARY_PATH", "old");
    machine.install("old", ("libnvrtc.so", &["NVRTC=12"]));
    machine.install("old", ("libcublasLt.so", &["CUBLASLT=120401"]));
    machine.install("old", ("libnccl.so", &["NCCL=22105"]));
    machine
}

#[test]
fn what_is_too_old_says_what_gets_a_newer_one() {
    let json = with_old_ones().json();
    let problem = json["libraries"][1]["problem"].as_str().unwrap();
    has(&problem, &["CUDA 12.0; CUDA 13.0 or newer is needed", "`pip install nvidia-cuda-nvrtc=="]);
}

#[test]
fn packages_of_an_active_environment_are_found_whatever_the_loader_has() {
    let machine = with_old_ones().with("VIRTUAL_ENV", "venv");
    let packages = "venv/lib/python3.11/site-packages/nvidia";
    let cu13 = format!("{packages}/cu13/lib");
    let files = [
        ("NVRTC", "13.0", machine.install(&cu13, NVRTC)),
        ("cuBLASLt", "13.1.0", machine.install(&cu13, CUBLASLT)),
        ("NCCL", "2.28.9", machine.install(&format!("{packages}/nccl/lib"), NCCL)),
    ];
    for (name, version, file) in files {
        assert_eq!(machine.library(name), (version.to_owned(), file));
    }
    let path = machine.json()["library_path"].as_str().unwrap().to_owned();
    assert!(path.starts_with(machine.path("home/.cache/pipewright/").to_str().unwrap()), "{path}");
    assert!(path.contains(&cu13) && path.ends_with("/old"), "{path}");
}

#[test]
fn packages_are_found_in_each_place_that_pythons_have() {
    let nvidia = "lib/python3.12/site-packages/nvidia/cu13/lib";
    let places = [
        "home/.local/lib/python3.12/site-packages/nvidia/cu13/lib",
        "home/.pyenv/versions/3.12.1/lib/python3.12/site-packages/nvidia/cu13/lib",
        "toolkit/lib64",
    ];
    for place in places {
        let machine = with_old_ones().with("CUDA_HOME", "toolkit");
        let file = machine.install(place, NVRTC);
        assert_eq!(machine.library("NVRTC").1, file, "{place}");
    }
    for prefix in ["environment", "python"] {
        let machine = with_old_ones().with("PATH", "environment/bin");
        for bin in ["environment/bin", "python/bin"] {
            fs::create_dir_all(machine.path(bin)).unwrap();
        }
        machine.write("python/bin/python3.12", "");
        symlink(machine.path("python/bin/python3.12"), machine.path("environment/bin/python3")).unwrap();
        let file = machine.install(&format!("{prefix}/{nvidia}"), NVRTC);
        assert_eq!(machine.library("NVRTC").1, file, "beside python3 in {prefix}");
    }
}

#[test]
fn folders_that_the_user_names_come_first() {
    let machine = Machine::new().with("LD_LIBRARY_PATH", "loader").with("PIPEWRIGHT_CUDA_LIBS", "own");
    machine.install("loader", NVRTC);
    let file = machine.install("own", ("libnvrtc.so.13", &["NVRTC=13"]));
    assert_eq!(machine.library("NVRTC").1, file);
}

#[test]
fn a_file_that_is_no_library_is_tried_once() {
    let machine = Machine::new().with("PIPEWRIGHT_CUDA_LIBS", "own");
    fs::create_dir_all(machine.path("own")).unwrap();
    for name in [DRIVER.0, NVRTC.0, CUBLASLT.0, NCCL.0] {
        fs::write(machine.path("own").join(name), "").unwrap();
    }
    assert!(machine.devices().starts_with("cpu "));
}

#[test]
fn links_lie_where_no_one_else_can_write() {
    let machine = Machine::new().with("PIPEWRIGHT_CUDA_LIBS", "own");
    machine.install("own", NCCL);
    assert_eq!(machine.library("NCCL").0, "2.28.9");
    let cache = machine.path("home/.cache/pipewright");
    let links = fs::read_dir(cache).unwrap().next().unwrap().unwrap().path();
    assert_eq!(links.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    fs::set_permissions(&links, fs::Permissions::from_mode(0o777)).unwrap();
    let said = machine.run(&["devices"]).done().stderr();
    has(&said, &["others can write there, so no libraries are loaded from it"]);
}

#[test]
fn nothing_of_cuda_is_loaded_by_what_asks_for_no_gpu() {
    let machine = Machine::new().with("LD_LIBRARY_PATH", "cuda").with("PIPEWRIGHT_CUDA_LIBS", "cuda");
    for recipe in [DRIVER, NVRTC, CUBLASLT, NCCL] {
        machine.install("cuda", (recipe.0, &["ABORTS"]));
    }
    assert_eq!(machine.run(&["devices"]).0.status.code(), None, "what loads them is killed");
    machine.write_config();
    let plan = "plan --ranks 2 --micro-batches 4 --schedule 1f1b";
    let train = "train my.toml --steps 1";
    for command in ["--help", "devices --help", plan, train, "profile my.toml"] {
        let args: Vec<_> = command.split(' ').collect();
        machine.run(&args).done();
    }
}
