//! How large the values of a template may become, found before anything is drawn. Fuel counts steps, and one step can double
//! a text: so a template is read as a tree, and each expression gets an upper bound of what it draws.
use std::collections::HashMap;

use minijinja::{
    machinery::{Token, ast, parse, tokenize},
    syntax::SyntaxConfig,
    value::Value,
};
use serde_json::{Map, Value as Json};

/// What a template may hold in computed values, all together.
const MOST_BYTES: u64 = 8 * 1024 * 1024;
/// Chains of operators and branches become trees as deep as they are long, and those are walked by recursion.
const MOST_TOKENS: usize = 400;
const MOST_BRANCHES: usize = 100;
/// What a value has around it at most: quotes, a sign, the digits of a number.
const FRAME: u64 = 48;
/// What `range` draws at most: 100,000 numbers of up to 20 digits.
const RANGE: u64 = 2_500_000;

/// What is known of the variables of a template.
pub struct Variables {
    /// None before there are any: then every variable may be small, and a number.
    all: Option<u64>,
    /// By name, wherever it stands.
    named: HashMap<String, Bound>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bound {
    bytes: u64,
    is_number: bool,
}

impl Bound {
    const NUMBER: Self = Self { bytes: FRAME, is_number: true };

    fn text(bytes: u64) -> Self {
        Self { bytes, is_number: false }
    }

    fn or(self, other: Self) -> Self {
        Self { bytes: self.bytes.max(other.bytes), is_number: self.is_number && other.is_number }
    }
}

impl Variables {
    pub fn unknown() -> Self {
        Self { all: None, named: HashMap::new() }
    }

    pub fn of(variables: &Map<String, Json>) -> Self {
        let mut named = HashMap::new();
        let all = measure_members(variables, &mut named);
        Self { all: Some(all), named }
    }
}

/// How long a value is when it is drawn.
fn measure(value: &Json, named: &mut HashMap<String, Bound>) -> u64 {
    match value {
        Json::String(text) => text.len() as u64,
        Json::Array(list) => list.iter().fold(FRAME, |all, one| all.saturating_add(measure_within(one, named))),
        Json::Object(members) => measure_members(members, named),
        _ => FRAME,
    }
}

/// In a list a text has quotes, and its characters may become escapes.
fn measure_within(value: &Json, named: &mut HashMap<String, Bound>) -> u64 {
    match value {
        Json::String(text) => quoted(text.len() as u64),
        other => measure(other, named).saturating_add(4),
    }
}

fn quoted(bytes: u64) -> u64 {
    bytes.saturating_mul(6).saturating_add(4)
}

fn measure_members(members: &Map<String, Json>, named: &mut HashMap<String, Bound>) -> u64 {
    let mut all = FRAME;
    for (name, value) in members {
        let bytes = measure(value, named);
        let bound = Bound { bytes, is_number: value.is_number() };
        named.entry(name.clone()).and_modify(|before| *before = before.or(bound)).or_insert(bound);
        all = all.saturating_add(quoted(name.len() as u64)).saturating_add(quoted(bytes));
    }
    all
}

/// Refuses a template whose values could become too large. Answers the size of the largest value that it computes.
pub fn check(source: &str, variables: &Variables) -> Result<u64, String> {
    let has_maps = check_tokens(source)?;
    let tree = parse(source, "template", SyntaxConfig::default()).map_err(|error| super::in_words(&error))?;
    let mut walk =
        Walk { variables, bound: HashMap::new(), kept: 0, largest: FRAME, has_maps, loops: 0, has_grown: false };
    walk.statements(std::slice::from_ref(&tree))?;
    Ok(walk.largest)
}

/// A very long tag, and very many branches, would be trees that overflow the stack. Answers whether a map is written down in
/// the template: then a name says nothing about the size of what it stands for.
fn check_tokens(source: &str) -> Result<bool, String> {
    let (mut tokens, mut branches, mut has_maps) = (0, 0, false);
    for token in tokenize(source, false, SyntaxConfig::default()) {
        match token.map_err(|error| super::in_words(&error))?.0 {
            Token::TemplateData(_) | Token::VariableStart | Token::BlockStart => tokens = 0,
            Token::Ident("elif") => branches += 1,
            token => {
                tokens += 1;
                // What is grouped has members of names of its own.
                has_maps |= matches!(token, Token::BraceOpen | Token::Ident("groupby"));
            }
        }
        if tokens > MOST_TOKENS || branches > MOST_BRANCHES {
            return Err("cannot be drawn: a tag is too long, or there are more than 100 branches".into());
        }
    }
    Ok(has_maps)
}

struct Walk<'a, 'v> {
    variables: &'v Variables,
    /// What the template itself binds: the largest value of each name, wherever it is bound.
    bound: HashMap<&'a str, Bound>,
    kept: u64,
    largest: u64,
    has_maps: bool,
    loops: usize,
    has_grown: bool,
}

impl<'a> Walk<'a, '_> {
    fn statements(&mut self, list: &[ast::Stmt<'a>]) -> Result<(), String> {
        list.iter().try_for_each(|one| self.statement(one))
    }

    fn statement(&mut self, statement: &ast::Stmt<'a>) -> Result<(), String> {
        match statement {
            ast::Stmt::Template(all) => self.statements(&all.children),
            ast::Stmt::EmitRaw(_) => Ok(()),
            ast::Stmt::EmitExpr(shown) => self.bound(&shown.expr).map(drop),
            ast::Stmt::IfCond(cond) => {
                self.bound(&cond.expr)?;
                self.statements(&cond.true_body)?;
                self.statements(&cond.false_body)
            }
            ast::Stmt::ForLoop(one) if !one.recursive => self.for_loop(one),
            ast::Stmt::Set(set) => {
                let bound = self.bound(&set.expr)?;
                self.bind(&set.target, bound)
            }
            ast::Stmt::WithBlock(with) => {
                for (target, expr) in &with.assignments {
                    let bound = self.bound(expr)?;
                    self.bind(target, bound)?;
                }
                self.statements(&with.body)
            }
            ast::Stmt::AutoEscape(escape) => {
                self.bound(&escape.enabled)?;
                self.statements(&escape.body)
            }
            _ => {
                Err("cannot be drawn: templates have variables, conditions, loops and set, and no blocks, macros or \
                      includes"
                    .into())
            }
        }
    }

    /// What a round leaves behind may be there in the next one. A second walk over the body finds what would go on growing.
    fn for_loop(&mut self, one: &ast::ForLoop<'a>) -> Result<(), String> {
        let items = self.bound(&one.iter)?;
        self.bind(&one.target, Bound::text(items.bytes))?;
        self.loops += 1;
        let round = |walk: &mut Self| {
            one.filter_expr.iter().try_for_each(|filter| walk.bound(filter).map(drop))?;
            walk.statements(&one.body)
        };
        round(self)?;
        if self.loops == 1 {
            self.has_grown = false;
            round(self)?;
            if self.has_grown {
                return Err("cannot be drawn: a variable grows with each round of a loop".into());
            }
        }
        self.loops -= 1;
        self.statements(&one.else_body)
    }

    fn bind(&mut self, target: &ast::Expr<'a>, bound: Bound) -> Result<(), String> {
        match target {
            ast::Expr::Var(var) => {
                let before = self.bound.get(var.id).copied();
                let after = before.map_or(bound, |before| before.or(bound));
                self.has_grown |= before != Some(after);
                self.bound.insert(var.id, after);
                let more = after.bytes.saturating_sub(before.map_or(0, |before| before.bytes));
                self.kept = self.kept.saturating_add(more);
                if self.kept > MOST_BYTES { Err(too_large()) } else { Ok(()) }
            }
            ast::Expr::List(list) => list.items.iter().try_for_each(|one| self.bind(one, bound)),
            ast::Expr::Tuple(tuple) => tuple.items.iter().try_for_each(|one| self.bind(one, bound)),
            _ => Err("cannot be drawn: set gives a value to a name, and not to a part of something".into()),
        }
    }

    fn bound(&mut self, expr: &ast::Expr<'a>) -> Result<Bound, String> {
        let (bound, is_computed) = self.expression(expr)?;
        if bound.bytes > MOST_BYTES && is_computed {
            return Err(too_large());
        }
        if is_computed {
            self.largest = self.largest.max(bound.bytes);
        }
        Ok(bound)
    }

    /// The bound of an expression, and whether evaluating it makes something new.
    fn expression(&mut self, expr: &ast::Expr<'a>) -> Result<(Bound, bool), String> {
        let bound = match expr {
            ast::Expr::Var(var) => return Ok((self.variable(var.id), false)),
            ast::Expr::Const(constant) => return Ok((of_constant(&constant.value), false)),
            ast::Expr::GetAttr(get) => {
                let whole = self.bound(&get.expr)?;
                return Ok((self.member(&get.expr, get.name, whole), false));
            }
            ast::Expr::GetItem(get) => {
                self.bound(&get.subscript_expr)?;
                return Ok((Bound::text(self.bound(&get.expr)?.bytes), false));
            }
            ast::Expr::Slice(slice) => {
                for part in [&slice.start, &slice.stop, &slice.step].into_iter().flatten() {
                    self.bound(part)?;
                }
                Bound::text(self.bound(&slice.expr)?.bytes)
            }
            ast::Expr::UnaryOp(one) => {
                self.bound(&one.expr)?;
                Bound::NUMBER
            }
            ast::Expr::BinOp(pair) => {
                let (left, right) = (self.bound(&pair.left)?, self.bound(&pair.right)?);
                binary(pair.op, left, right)?
            }
            ast::Expr::Compare(compare) => {
                let mut all = self.bound(&compare.expr)?.bytes;
                for op in &compare.ops {
                    all = all.max(self.bound(&op.expr)?.bytes);
                }
                Bound::text(FRAME)
            }
            ast::Expr::IfExpr(one) => {
                self.bound(&one.test_expr)?;
                let otherwise = one.false_expr.as_ref().map(|expr| self.bound(expr)).transpose()?;
                let bound = self.bound(&one.true_expr)?;
                return Ok((otherwise.map_or(bound, |otherwise| bound.or(otherwise)), false));
            }
            ast::Expr::Test(test) => {
                self.bound(&test.expr)?;
                self.arguments(&test.args)?;
                Bound::text(FRAME)
            }
            ast::Expr::Filter(filter) => self.filter(filter)?,
            ast::Expr::Call(call) => self.call(call)?,
            ast::Expr::List(list) => self.list(&list.items)?,
            ast::Expr::Tuple(tuple) => self.list(&tuple.items)?,
            ast::Expr::Map(map) => {
                let (keys, values) = (self.list(&map.keys)?, self.list(&map.values)?);
                Bound::text(keys.bytes.saturating_add(values.bytes))
            }
        };
        Ok((bound, true))
    }

    fn variable(&self, name: &str) -> Bound {
        let given = match self.variables.all {
            Some(_) => self.variables.named.get(name).copied(),
            None => Some(Bound::NUMBER),
        };
        match (self.bound.get(name).copied(), given) {
            (Some(bound), Some(given)) if self.variables.all.is_some() => bound.or(given),
            (Some(bound), _) => bound,
            (None, given) => given.unwrap_or(Bound::text(FRAME)),
        }
    }

    fn member(&self, of: &ast::Expr<'a>, name: &str, whole: Bound) -> Bound {
        let is_loop = matches!(of, ast::Expr::Var(var) if var.id == "loop") && !self.bound.contains_key("loop");
        let counts = ["index", "index0", "revindex", "revindex0", "length", "depth", "depth0"];
        if is_loop && counts.contains(&name) {
            return Bound::NUMBER;
        }
        match (self.has_maps, self.variables.all) {
            (false, Some(_)) => self.variables.named.get(name).copied().unwrap_or(Bound::text(whole.bytes)),
            (false, None) => Bound::NUMBER,
            (true, _) => Bound::text(whole.bytes),
        }
    }

    fn list(&mut self, items: &[ast::Expr<'a>]) -> Result<Bound, String> {
        let mut all = FRAME;
        for item in items {
            all = quoted(self.bound(item)?.bytes).saturating_add(all);
        }
        Ok(Bound::text(all))
    }

    fn arguments(&mut self, arguments: &[ast::CallArg<'a>]) -> Result<Vec<Bound>, String> {
        let mut bounds = vec![];
        for argument in arguments {
            match argument {
                ast::CallArg::Pos(expr) | ast::CallArg::Kwarg(_, expr) => bounds.push(self.bound(expr)?),
                _ => return Err("cannot be drawn: arguments are written out one by one".into()),
            }
        }
        Ok(bounds)
    }

    fn filter(&mut self, filter: &ast::Filter<'a>) -> Result<Bound, String> {
        let whole = filter.expr.as_ref().map_or(Ok(Bound::NUMBER), |expr| self.bound(expr))?;
        let arguments = self.arguments(&filter.args)?;
        let size = |place: usize| arguments.get(place).map_or(0, |bound| bound.bytes);
        let times = |factor: u64| whole.bytes.saturating_mul(factor).saturating_add(FRAME);
        // An argument for each place between two characters.
        let between = |argument: u64| times(argument.saturating_add(2));
        Ok(match filter.name {
            "length" | "count" | "int" | "float" | "round" | "abs" | "sum" => Bound::NUMBER,
            "bool" => Bound::text(FRAME),
            "upper" | "lower" | "capitalize" | "title" | "trim" | "string" | "safe" | "first" | "last" | "min"
            | "max" | "attr" => Bound::text(times(3)),
            "sort" | "reverse" | "unique" | "list" | "items" | "dictsort" | "select" | "reject" | "selectattr"
            | "rejectattr" | "groupby" | "escape" | "e" | "urlencode" | "lines" | "split" => Bound::text(times(6)),
            // With a second argument a batch is filled up, however long.
            "batch" if arguments.len() == 1 => Bound::text(times(6)),
            "format" => formatted(filter, &arguments)?,
            "default" | "d" => arguments.iter().copied().fold(whole, Bound::or),
            "join" => Bound::text(between(size(0))),
            "replace" => Bound::text(between(size(1))),
            "map" if filter.args.iter().all(|one| matches!(one, ast::CallArg::Kwarg("attribute" | "default", _))) => {
                Bound::text(times(2).saturating_add(size(0)).saturating_add(size(1)))
            }
            name => return Err(format!("cannot be drawn: the filter {name} is not available here")),
        })
    }

    fn call(&mut self, call: &ast::Call<'a>) -> Result<Bound, String> {
        let arguments = self.arguments(&call.args)?;
        match &call.expr {
            ast::Expr::Var(var) if var.id == "range" => Ok(Bound::text(RANGE)),
            ast::Expr::GetAttr(get) if matches!(&get.expr, ast::Expr::Var(var) if var.id == "loop") => match get.name
            {
                "cycle" => Ok(arguments.into_iter().reduce(Bound::or).unwrap_or(Bound::NUMBER)),
                "changed" => Ok(Bound::text(FRAME)),
                name => Err(format!("cannot be drawn: loop has no function {name}")),
            },
            _ => Err("cannot be drawn: only range, loop.cycle and loop.changed are called".into()),
        }
    }
}

/// A format that is written down in the template, with widths of at most three digits.
fn formatted(filter: &ast::Filter<'_>, arguments: &[Bound]) -> Result<Bound, String> {
    let refused = || "cannot be drawn: format is for a text of the template, with widths below 1000".to_owned();
    let Some(ast::Expr::Const(constant)) = &filter.expr else { return Err(refused()) };
    let text = constant.value.as_str().ok_or_else(refused)?;
    if text.contains('*') || text.split(|c: char| !c.is_ascii_digit()).any(|digits| digits.len() > 3) {
        return Err(refused());
    }
    let (places, all) =
        (text.matches('%').count() as u64, arguments.iter().fold(0, |sum: u64, one| sum.saturating_add(one.bytes)));
    Ok(Bound::text(places.saturating_mul(all.saturating_add(2000)).saturating_add(text.len() as u64)))
}

fn of_constant(value: &Value) -> Bound {
    match value.as_str() {
        Some(text) => Bound::text(text.len() as u64),
        None if value.is_number() => Bound::NUMBER,
        None => Bound::text(value.to_string().len() as u64),
    }
}

fn binary(op: ast::BinOpKind, left: Bound, right: Bound) -> Result<Bound, String> {
    use ast::BinOpKind::{Add, Concat, Div, FloorDiv, Mul, Pow, Rem, ScAnd, ScOr, Sub};
    let are_numbers = left.is_number && right.is_number;
    match op {
        Sub | Div | FloorDiv | Rem | Pow => Ok(Bound::NUMBER),
        Add | Mul if are_numbers => Ok(Bound::NUMBER),
        Mul => {
            Err("cannot be drawn: * is for numbers; write x | int for a variable that may be something else".into())
        }
        Add | Concat => Ok(Bound::text(left.bytes.saturating_add(right.bytes))),
        ScAnd | ScOr => Ok(left.or(right)),
        _ => Ok(Bound::text(FRAME)),
    }
}

fn too_large() -> String {
    "cannot be drawn: its values could become larger than 8 MiB".into()
}
