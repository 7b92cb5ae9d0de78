//! From the socket to the handler and back: one route table, one pipeline, one way to read input and to say no.
mod client;
mod describe;
mod document;
mod door;
mod headers;
mod idempotency;
mod input;
mod inside;
mod limit;
mod origins;
mod paging;
mod patience;
mod routes;
mod serve;
mod tongue;

pub use aide::{OperationInput, OperationOutput, generate::GenContext, openapi::Operation};
pub use client::Client;
pub use describe::{Description, Documents, may_answer, requires};
pub use document::Document;
pub use door::Door;
pub use idempotency::{ForgetReplies, ReplayGuard};
pub use input::{Form, FormOrJson, FormPairs, Json, MaybeJson, Path, Query, Raw};
pub use inside::Inside;
pub use origins::{AppOrigins, bearer, foreign_origin};
pub use paging::{Key, Page};
pub use routes::Routes;
pub use serve::serve;
