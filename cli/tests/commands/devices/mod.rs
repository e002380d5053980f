//! The command `devices`, and where each command loads CUDA from. Small libraries that the tests compile
//! stand in for CUDA's. They are found before the machine's.

use serde_json::Value;

use super::*;

mod found;
mod kept;
mod measured;
mod offload;
mod told;

/// How to compile a stand-in: the file's name and the macros.
type Recipe<'a> = (&'a str, &'a [&'a str]);

/// A driver with one GPU, and libraries, all new enough.
const DRIVER: Recipe = ("libcuda.so.1", &["DRIVER=13000", "INIT=0", "MAJOR=9"]);
const NVRTC: Recipe = ("libnvrtc.so.13", &["NVRTC=13"]);
const CUBLASLT: Recipe = ("libcublasLt.so.13", &["CUBLASLT=130100"]);
const NCCL: Recipe = ("libnccl.so.2", &["NCCL=22809"]);

/// A machine's folders and variables, as far as they affect where libraries are found.
struct Machine {
    place: Place,
    variables: Vec<(&'static str, PathBuf)>,
}

impl std::ops::Deref for Machine {
    type Target = Place;

    fn deref(&self) -> &Place {
        &self.place
    }
}

impl Machine {
    /// Nothing is installed, and the cache is empty.
    fn new() -> Self {
        Self { place: Place::empty(), variables: Vec::new() }
    }

    /// Puts a stand-in into a folder and returns its path.
    fn install(&self, folder: &str, (name, macros): Recipe) -> PathBuf {
        let file = self.path(folder).join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/commands/devices/stand_in.c");
        let status = Command::new("cc")
            .args(["-shared", "-fPIC", "-o"])
            .arg(&file)
            .args(macros.iter().map(|name| format!("-D{name}")))
            .arg(source)
            .status()
            .expect("the compiler that links Rust programs");
        assert!(status.success(), "{name}");
        file
    }

    /// Sets a variable to a folder of this machine.
    fn with(mut self, variable: &'static str, folder: &str) -> Self {
        self.variables.push((variable, self.path(folder)));
        self
    }

    /// Something to train, and to train on.
    fn write_config(&self) {
        self.write("my.toml", CONFIG);
        self.write("text.txt", "the quick brown fox ".repeat(90));
    }

    fn run(&self, args: &[&str]) -> Run {
        let mut command = self.command(args);
        command.env_clear().env("HOME", self.path("home")).envs(self.variables.iter().cloned());
        Run(command.output().unwrap())
    }

    fn devices(&self) -> String {
        self.run(&["devices"]).done().stdout()
    }

    fn json(&self) -> Value {
        let run = self.run(&["devices", "--format", "json"]).done();
        serde_json::from_str(&run.stdout()).unwrap()
    }

    /// The version and the file of the library of this name.
    fn library(&self, name: &str) -> (String, PathBuf) {
        let json = self.json();
        let mut libraries = json["libraries"].as_array().unwrap().iter();
        let library = libraries.find(|library| library["name"] == name).unwrap();
        let text = |key: &str| library[key].as_str().unwrap_or_default().to_owned();
        (text("version"), text("path").into())
    }
}

/// A machine with an emulated GPU and a config and text to train with. `None` without an emulator.
fn emulated() -> Option<Machine> {
    let emulator::Cuda::Emulated(folder) = emulator::start() else {
        return None;
    };
    let mut machine = Machine::new();
    machine.variables.push(("LD_LIBRARY_PATH", folder.clone()));
    // The emulator compiles kernels by g++.
    let path = std::env::var_os("PATH").expect("g++ was found");
    machine.variables.push(("PATH", path.into()));
    machine.write_config();
    Some(machine)
}
