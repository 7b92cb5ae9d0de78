//! Agents that get tokens and spend until they are suspended, by their limit or by the kill switch.
use serde_json::{Value, json};

use super::{Area, Soak, ledger::Agent};
use crate::{one_node::Dice, support::people::text};

const AREA: Area = Area::Agents;
pub const MOST: u64 = 1000;
/// An organization has a hundred machines at most.
const AT_ONCE: usize = 60;

impl Soak {
    pub fn spend(&self, dice: &mut Dice) {
        while !self.is_over() {
            self.live(dice);
            Self::pause(dice, 400);
        }
    }

    /// The life of one agent.
    fn live(&self, dice: &mut Dice) -> Option<()> {
        let limits = json!([{ "meter": "spend", "max": MOST, "per": "month", "then": "suspend" }]);
        let wish = json!({ "name": format!("Agent {}", self.number()), "framework": "langgraph", "orgId": self.org,
            "scopes": ["orders:read"], "limits": limits });
        let made = self.ask(AREA, dice, "POST /framework-agent/register", &self.bearer(), &wish, &[200, 201])?.json();
        let (id, secret) = (text(&made["clientId"]), text(&made["clientSecret"]));
        let place = self.note(|ledger| {
            ledger.agents.push(Agent {
                id: id.clone(),
                spent: 0,
                perhaps: 0,
                is_suspended: false,
                is_deleted: false,
            });
            ledger.agents.len() - 1
        });
        let form = format!("grant_type=client_credentials&client_id={id}&client_secret={secret}");
        let more = "\r\nContent-Type: application/x-www-form-urlencoded";
        let token = self.ask_with(AREA, dice, "POST /oauth/token", more, form.as_bytes(), &[200])?.json();
        let token = text(&token["access_token"]);
        for _ in 0..2 + dice.roll(8) {
            if !self.spends(dice, place, &token)? {
                break;
            }
            Self::pause(dice, 100);
        }
        let bearer = format!("\r\nAuthorization: Bearer {token}");
        if !self.note(|ledger| ledger.agents[place].is_suspended) && dice.roll(2) == 0 {
            let more = format!("\r\nAuthorization: Bearer {}", text(&made["killSwitchToken"]));
            let path = format!("POST /framework-agent/{id}/suspend");
            self.ask(AREA, dice, &path, &more, &Value::Null, &[200, 204])?;
            self.note(|ledger| ledger.agents[place].is_suspended = true);
        }
        if self.note(|ledger| ledger.agents[place].is_suspended) {
            self.everywhere(AREA, "a suspended agent", "GET /machine/me", &bearer, b"", 401);
        } else {
            let me = self.ask(AREA, dice, "GET /machine/me", &bearer, &Value::Null, &[200])?.json();
            let spent = self.note(|ledger| ledger.agents[place].spent);
            if me["limits"][0]["used"] != spent {
                self.wrong(format!("an agent spent {spent}, and {me} says otherwise"));
            }
        }
        self.retire(dice)
    }

    /// Deletes the oldest agent once there are many.
    fn retire(&self, dice: &mut Dice) -> Option<()> {
        let (place, id) = self.note(|ledger| {
            let mut there = ledger.agents.iter().enumerate().filter(|(_, agent)| !agent.is_deleted);
            let oldest = there.next().map(|(place, agent)| (place, agent.id.clone()));
            oldest.filter(|_| there.count() >= AT_ONCE)
        })?;
        let path = format!("DELETE /framework-agent/{id}");
        let reply = self.ask(AREA, dice, &path, &self.bearer(), &Value::Null, &[204, 404])?;
        if reply.status == 404 && reply.unanswered == 0 {
            self.wrong(format!("agent {id} was lost before it was deleted"));
        }
        self.note(|ledger| ledger.agents[place].is_deleted = true);
        Some(())
    }

    /// Spends once; answers whether there is more to spend.
    fn spends(&self, dice: &mut Dice, place: usize, token: &str) -> Option<bool> {
        let amount = 1 + dice.roll(400);
        let body = json!({ "token": token, "meter": "spend", "amount": amount,
            "idempotencyKey": format!("spend-{}", self.number()) });
        let spent = self.note(|ledger| {
            ledger.agents[place].perhaps = amount;
            ledger.agents[place].spent
        });
        let is_over = spent + amount > MOST;
        let reply = self.ask(AREA, dice, "POST /machine/spend", &Self::key(&self.secret), &body, &[200, 401])?;
        let said = reply.json();
        // The first try may have suspended it, and its token is of no use then.
        let refused = reply.status == 401 && reply.unanswered > 0;
        let allowed = said["allowed"] == true;
        if (reply.status == 401 && !refused) || allowed == is_over {
            self.wrong(format!("{amount} after {spent} of {MOST}: {} {said}", reply.status));
        }
        if allowed && said["remaining"] != MOST - spent - amount {
            self.wrong(format!("{amount} after {spent} of {MOST} leaves {said}"));
        }
        self.note(|ledger| {
            let agent = &mut ledger.agents[place];
            agent.perhaps = 0;
            agent.spent += if allowed { amount } else { 0 };
            agent.is_suspended = !allowed;
        });
        Some(allowed)
    }
}
