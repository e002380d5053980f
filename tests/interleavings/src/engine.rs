//! What the files of the engine import from the rest of it, as far as they need it.
#![allow(dead_code, reason = "the fields are for messages, which nobody reads here")]

#[derive(Clone, Copy)]
pub(crate) struct Shape;

#[derive(Clone, Copy)]
pub(crate) struct DType;

pub(crate) mod id {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub(crate) struct WorldRank(pub(crate) u32);

    impl WorldRank {
        pub(crate) fn index(self) -> usize {
            self.0 as usize
        }
    }

    impl std::fmt::Display for WorldRank {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            self.0.fmt(f)
        }
    }
}

pub(crate) mod error {
    use super::id::WorldRank;

    pub(crate) type Result<T> = std::result::Result<T, Error>;

    #[derive(Debug)]
    pub(crate) enum Error {
        PeerGone(WorldRank),
        Fabric(FabricError),
    }

    #[derive(Clone, Debug)]
    pub(crate) enum FabricError {
        Failed(String),
    }

    impl FabricError {
        pub(crate) fn failed(text: impl Into<String>) -> Self {
            Self::Failed(text.into())
        }
    }

    impl From<FabricError> for Error {
        fn from(error: FabricError) -> Self {
            Self::Fabric(error)
        }
    }
}
