//! Long sequences of tokens: in a file of tokens, with its description and its index beside it, or from files
//! of text, whose bytes are the tokens. A file that is written gets its name when it is complete.

pub(super) mod corpus;
pub(super) mod described;
pub(super) mod index;
pub(super) mod partial;
pub(super) mod text;
pub(super) mod tokens;
pub(super) mod writer;
