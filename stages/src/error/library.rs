//! CUDA's libraries: their names, the oldest versions that will do, and what to do if one is missing.

use std::fmt;

/// A CUDA library. None is linked; each is loaded when it is first needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// The driver. No GPU works without it.
    Driver,
    /// The compiler for kernels.
    Nvrtc,
    /// Matrix products.
    CublasLt,
    /// Transfers between processes.
    Nccl,
}

/// A library's version: major, minor and patch. The driver and NVRTC have no patch number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u32, pub u32, pub Option<u32>);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(major, minor, patch) = self;
        write!(f, "{major}.{minor}")?;
        patch.map_or(Ok(()), |patch| write!(f, ".{patch}"))
    }
}

impl Library {
    /// All libraries.
    pub const ALL: [Self; 4] = [Self::Driver, Self::Nvrtc, Self::CublasLt, Self::Nccl];

    /// The library's usual name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Driver => "CUDA driver",
            Self::Nvrtc => "NVRTC",
            Self::CublasLt => "cuBLASLt",
            Self::Nccl => "NCCL",
        }
    }

    /// The file that the loader looks for.
    pub fn file(self) -> &'static str {
        match self {
            Self::Driver => "libcuda.so.1",
            Self::Nvrtc => "libnvrtc.so.13",
            Self::CublasLt => "libcublasLt.so.13",
            Self::Nccl => "libnccl.so.2",
        }
    }

    /// What Pipewright uses it for.
    pub fn purpose(self) -> &'static str {
        match self {
            Self::Driver => "GPUs",
            Self::Nvrtc => "compiling the kernels",
            Self::CublasLt => "matrix products",
            Self::Nccl => "transfers between processes",
        }
    }

    /// The PyPI package that contains it, with the version that was tested. `None` for the driver.
    pub fn package(self) -> Option<&'static str> {
        match self {
            Self::Driver => None,
            Self::Nvrtc => Some("nvidia-cuda-nvrtc==13.0.88"),
            Self::CublasLt => Some("nvidia-cublas==13.1.0.3"),
            Self::Nccl => Some("nvidia-nccl-cu13==2.28.9"),
        }
    }

    /// The product that its version number belongs to.
    pub(crate) fn product(self) -> &'static str {
        match self {
            Self::Driver | Self::Nvrtc => "CUDA",
            Self::CublasLt => "cuBLAS",
            Self::Nccl => "NCCL",
        }
    }

    /// The oldest version that has the interface used here.
    pub(crate) fn oldest(self) -> Version {
        match self {
            Self::Driver | Self::Nvrtc => Version(13, 0, None),
            Self::CublasLt => Version(13, 0, Some(0)),
            Self::Nccl => Version(2, 28, Some(0)),
        }
    }

    /// How to install it.
    pub fn remedy(self) -> String {
        match self.package() {
            None => "install NVIDIA's driver 580 or newer".to_owned(),
            Some(package) => {
                format!("`pip install {package}` (`pipewright devices --help` tells where it is looked for)")
            }
        }
    }
}
