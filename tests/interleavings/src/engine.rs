//! What the files of the engine import from the rest of it, as far as they need it.
#![allow(dead_code, reason = "the fields are for messages, which nobody reads here")]

pub(crate) mod id {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub(crate) struct WorldRank(pub(crate) u32);

    impl WorldRank {
        pub(crate) fn index(self) -> usize {
            self.0 as usize
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
        NoCarrier { from: WorldRank, to: WorldRank },
        CarrierKept { rank: WorldRank, attempt: u32 },
        LeftOver { from: WorldRank, call: u64 },
    }

    impl From<FabricError> for Error {
        fn from(error: FabricError) -> Self {
            Self::Fabric(error)
        }
    }
}
