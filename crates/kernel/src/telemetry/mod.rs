//! Log lines and metrics.
mod about;
mod lines;
mod measured;
mod metrics;
mod minutes;
mod process;
mod queue;
mod spans;
mod traced;

pub use about::{ABOUT, About, SpanContext, SpanPlace, about, request_id, traceparent};
pub use lines::{Lines, init};
pub use measured::{Figure, Measure};
pub use metrics::{Attempts, Exposition, Metrics, RouteMetrics};
pub use minutes::{Counts, JobCounts, RouteCounts, TaskCounts, Times};
pub use queue::{flush, say};
pub use spans::{Span, SpanOf, Spans, Wanted};
pub use traced::{Alarm, Checking, MOST_STEPS, StepKind, Symptom, TraceStep, Traced, Tracing};
