//! `pipewright profile`: what the layers of a model cost on this machine.
