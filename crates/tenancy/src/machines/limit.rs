//! A limit as it is set: how much of a meter, in which window, and what happens then.
use kernel::clock::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineLimit {
    /// `tokens`, `requests` (introspections), `spend` (minor units) or any meter that your services spend.
    #[schemars(regex(pattern = "^[a-z][a-z0-9_.-]{0,63}$"))]
    pub meter: String,
    #[schemars(range(min = 1, max = 9_007_199_254_740_991_i64))]
    pub max: i64,
    pub per: Per,
    /// Default: `refuse`.
    #[serde(default)]
    pub then: Then,
}

/// The window of a limit, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Per {
    Hour,
    Day,
    Month,
}

/// The effect of a limit that is used up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Then {
    #[default]
    Refuse,
    Suspend,
}

impl Per {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Month => "month",
        }
    }

    /// When the window of a moment begins, and when it ends.
    pub fn window(self, now: Timestamp) -> (Timestamp, Timestamp) {
        const HOUR_MS: i64 = 3_600_000;
        match self {
            Self::Hour => {
                let since = now.0.div_euclid(HOUR_MS) * HOUR_MS;
                (Timestamp(since), Timestamp(since + HOUR_MS))
            }
            Self::Day => {
                let since = now.day().start();
                (since, Timestamp(since.0 + Timestamp::DAY_MS))
            }
            Self::Month => now.month(),
        }
    }
}
