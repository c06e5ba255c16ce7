//! A plan as a page: error over time and over features, and every method to pick.

use std::fmt::Write;

use serde::Deserialize;
use serde_json::Value;

use crate::page::page;
use crate::text::escape;
use crate::{Figure, Mark, Panel, Parts, Scale, Series, Stroke, Style, key};

/// What a page shows of a plan's JSON.
#[derive(Deserialize)]
struct Plan {
    target_error: Option<f64>,
    recommended: Option<usize>,
    candidates: Vec<Candidate>,
    rejected: Vec<[String; 2]>,
    notes: Vec<String>,
}

#[derive(Deserialize)]
struct Candidate {
    spec: Value,
    predicted_error: f64,
    standard_error: f64,
    feature_seconds_per_million_rows: f64,
    fit_seconds_per_million_rows: f64,
    validation: Option<Validation>,
}

#[derive(Deserialize)]
struct Validation {
    error: f64,
    standard_error: f64,
}

impl Candidate {
    fn method(&self) -> &str {
        self.spec["method"].as_str().unwrap_or_default()
    }

    fn features(&self) -> f64 {
        self.spec["features"].as_f64().unwrap_or_default()
    }

    fn seconds(&self) -> f64 {
        self.feature_seconds_per_million_rows + self.fit_seconds_per_million_rows
    }

    /// Makes the same sketch in Python. What has no short constructor is loaded from the saved spec.
    fn python(&self) -> String {
        let get = |name: &str| self.spec[name].to_string();
        let rest = || {
            format!(
                "gamma={}, coef0={}, n_components={}, method={}, random_state={}",
                get("gamma"),
                get("coef0"),
                get("features"),
                get("method"),
                get("seed")
            )
        };
        match (self.spec["kernel"]["name"].as_str(), self.method()) {
            (_, "nystrom") => "argand.NystromSketch.load(\"sketch.json\")".to_owned(),
            (Some("gaussian"), _) => "argand.GaussianSketch.load(\"sketch.json\")".to_owned(),
            (Some("exponential" | "series"), _) => "argand.DotProductSketch.load(\"sketch.json\")".to_owned(),
            _ if self.spec["input_dim"].is_array() => {
                format!("argand.TensorProductSketch({}, {})", get("input_dim"), rest())
            }
            _ => format!("argand.PolynomialSketch({}, {})", get("degree"), rest()),
        }
    }
}

/// A plan for a page to embed: charts and choices, with their style and script, and nothing from outside. `plans` are in JSON: the plan
/// itself, then any of the same rows with other numbers of features, which add points to the charts. `about` says what was planned, and
/// `command` applies a spec, given as JSON.
///
/// # Errors
/// What is wrong with the JSON.
pub fn plan_fragment(plans: &[&str], about: &str, command: impl Fn(&str) -> String) -> Result<String, String> {
    let plans = plans.iter().map(|plan| serde_json::from_str(plan)).collect::<Result<Vec<Plan>, _>>();
    let plans = plans.map_err(|error| format!("not a plan: {error}"))?;
    let Some(plan) = plans.first() else { return Err("no plan".to_owned()) };
    let mut page = format!("<div class=\"argand-plan\">\n<style>\n{}</style>\n", include_str!("plan.css"));
    let _ = writeln!(page, "<h1>Which features?</h1>\n<p class=\"soft\">{}</p>", escape(about));
    let figure = figure(plan, &plans);
    let svg = figure.svg();
    let charts = Parts::of(&svg).map_or("", |parts| parts.charts);
    let _ = writeln!(
        page,
        "<div class=\"charts\">\n{charts}</div>\n<p class=\"tip\" aria-live=\"polite\">Point at a line or a name; click to pick it.</p>\n\
         <p class=\"soft\">{}</p>\n<h2>Methods, best first</h2>",
        escape(&note(plan, &figure))
    );
    for (place, candidate) in plan.candidates.iter().enumerate() {
        let chosen = plan.recommended == Some(place);
        let class = if chosen { " class=\"chosen\" open" } else { "" };
        let method = escape(candidate.method());
        let validation =
            candidate.validation.as_ref().map_or(String::new(), |of| format!(", {:.4} on labels", of.error));
        let _ = writeln!(
            page,
            "<details name=\"argand-plan\" data-series=\"{method}\"{class}><summary><b>{method}</b> <span>{} features</span> \
             <span>error {:.4}{validation}</span> <span>{} s per million rows</span></summary>",
            candidate.features(),
            candidate.predicted_error,
            digits(candidate.seconds())
        );
        let spec = candidate.spec.to_string();
        for (what, text) in [("Command", command(&spec)), ("Python", candidate.python()), ("Spec", spec.clone())] {
            let _ = writeln!(
                page,
                "<div class=\"copy\"><span>{what}</span><pre>{}</pre><button type=\"button\">Copy</button></div>",
                escape(&text)
            );
        }
        page.push_str("</details>\n");
    }
    if !plan.rejected.is_empty() {
        page.push_str("<h2>Methods that do not reach the goal</h2>\n<ul>\n");
        for [method, reason] in &plan.rejected {
            let _ = writeln!(page, "<li>{}: {}</li>", escape(method), escape(reason));
        }
        page.push_str("</ul>\n");
    }
    for note in &plan.notes {
        let _ = writeln!(page, "<p>{}</p>", escape(note));
    }
    let _ = writeln!(page, "<script>\n{}</script>\n</div>", include_str!("plan.js"));
    Ok(page)
}

/// A plan as a page of its own, as [`plan_fragment`].
///
/// # Errors
/// What is wrong with the JSON.
pub fn plan_page(plans: &[&str], about: &str, command: impl Fn(&str) -> String) -> Result<String, String> {
    let fragment = plan_fragment(plans, about, command)?;
    Ok(page("Which features?", "style-src 'unsafe-inline'; script-src 'unsafe-inline'", &fragment))
}

/// Error over time and over features, of all plans, for the methods of the first.
fn figure(plan: &Plan, plans: &[Plan]) -> Figure {
    let panel =
        |title: &str, labels: [&str; 2], x_scale, x: fn(&Candidate) -> f64, y: fn(&Candidate) -> Option<(f64, f64)>| {
            let series = plan.candidates.iter().filter_map(|candidate| {
                let method = candidate.method();
                let all = plans.iter().flat_map(|plan| &plan.candidates).filter(|other| other.method() == method);
                // One point for every number of features: the earliest plan's.
                let mut points: Vec<(f64, (f64, f64, f64))> = Vec::new();
                for (other, (error, reach)) in all.filter_map(|other| Some((other, y(other)?))) {
                    if points.iter().all(|(features, _)| *features != other.features()) {
                        points.push((other.features(), (x(other), error, reach)));
                    }
                }
                points.sort_by(|a, b| a.0.total_cmp(&b.0));
                let points: Vec<(f64, f64, f64)> = points.into_iter().map(|(_, point)| point).collect();
                let (stroke, mark) = (Stroke::Solid, Mark::Dot);
                let plain = Style { mark, stroke, ..Style::numbered(crate::COLOURS.len() - 1) };
                let style = method.parse().map_or(plain, Style::of);
                let series = Series::new(method, style, points.iter().map(|point| (point.0, point.1)));
                (!points.is_empty()).then(|| series.with_bars(points.iter().map(|point| point.2)))
            });
            Panel {
                rules: [None, plan.target_error],
                ..Panel::new(title, labels, [x_scale, Scale::Logarithmic], series.collect())
            }
        };
    let predicted: fn(&Candidate) -> Option<(f64, f64)> =
        |candidate| Some((candidate.predicted_error, 1.96 * candidate.standard_error));
    let error = "relative error of the kernel matrix, predicted";
    let seconds = "seconds per million rows, features and fit";
    let mut panels = vec![
        panel("Error over time", [seconds, error], Scale::Logarithmic, Candidate::seconds, predicted),
        panel("Error over features", ["features", error], Scale::Doubling, Candidate::features, predicted),
    ];
    if plan.candidates.iter().any(|candidate| candidate.validation.is_some()) {
        let judged: fn(&Candidate) -> Option<(f64, f64)> =
            |candidate| candidate.validation.as_ref().map(|of| (of.error, 1.96 * of.standard_error));
        let labels = [seconds, "error of a model on rows held out"];
        let mut learnt = panel("Error on labels over time", labels, Scale::Logarithmic, Candidate::seconds, judged);
        learnt.rules = [None; 2];
        panels.push(learnt);
    }
    let panels = panels.into_iter().map(Panel::with_zeros).collect();
    Figure { name: "plan".to_owned(), caption: String::new(), columns: 2, panels, note: String::new() }
}

fn note(plan: &Plan, figure: &Figure) -> String {
    let key = key(figure.panels.iter().flat_map(|panel| &panel.series));
    let target = if plan.target_error.is_some() { " The horizontal line is the target." } else { "" };
    format!("{key} Bars are 95 % intervals.{target}").trim_start().to_owned()
}

/// Three significant digits.
fn digits(value: f64) -> String {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 6")]
    let decimals = (2.0 - value.abs().max(1e-4).log10().floor()).clamp(0.0, 6.0) as usize;
    format!("{value:.decimals$}")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn candidate(method: &str, features: usize, error: f64, more: &str) -> String {
        format!(
            "{{\"spec\": {{\"method\": \"{method}\", \"features\": {features}, \"degree\": 3, \"gamma\": 0.5, \"coef0\": 0.5, \"seed\": 0, \
             \"input_dim\": 4}}, \"predicted_error\": {error}, \"standard_error\": 0.01, \"feature_seconds_per_million_rows\": 1.5, \
             \"fit_seconds_per_million_rows\": 2.0, \"memory_bytes\": 1, \"in_time\": true{more}}}"
        )
    }

    fn plan(candidates: &[String], note: &str) -> String {
        format!(
            "{{\"target_error\": 0.1, \"target_features\": null, \"recommended\": 0, \"candidates\": [{}], \"rejected\": [[\"srf\", \"{note}\"]], \
             \"exact_features\": 6, \"opposed_pairs\": 0.0, \"notes\": [\"{note}\"]}}",
            candidates.join(",")
        )
    }

    #[test]
    fn a_page_has_every_method_and_escapes_everything() {
        const MARKUP: &str = "<script>x & 'y'</script>";
        let first = plan(
            &[
                candidate("ctr-product-srht", 256, 0.1, ""),
                candidate("tensor-sketch", 512, 0.09, ", \"validation\": null"),
            ],
            MARKUP,
        );
        let more = plan(&[candidate("ctr-product-srht", 1024, 0.05, "")], MARKUP);
        let page = plan_page(&[&first, &more], MARKUP, |spec| format!("{MARKUP} {}", spec.len())).unwrap();
        assert_eq!(page.matches("<details").count(), 2);
        assert_eq!(page.matches("<script").count(), 1);
        assert_eq!(page.matches("&lt;script&gt;x &amp; &#39;y&#39;").count(), 1 + 2 + 2);
        assert!(
            page.contains("<b>tensor-sketch</b> <span>512 features</span> <span>error 0.0900</span> <span>3.50 s"),
            "{page}"
        );
        let python = "argand.PolynomialSketch(3, gamma=0.5, coef0=0.5, n_components=256, method=&quot;ctr-product-srht&quot;, random_state=0)";
        assert!(page.contains(python), "{page}");
        // Lines need two points: those of one method with two numbers of features, in both charts.
        assert_eq!(page.matches("<polyline").count(), 2);
        assert!(!page.contains("http") || !page.replace("http://www.w3.org/2000/svg", "").contains("http:"));
        assert!(plan_page(&[], "", |_| String::new()).is_err() && plan_page(&["{}"], "", |_| String::new()).is_err());
    }

    /// The bars of two charts on the same axis: as long as each other for the same standard error, and a point where there is no error.
    #[test]
    fn bars_are_intervals_and_no_error_is_a_point() {
        let validated = |error: f64| {
            format!(
                ", \"validation\": {{\"error\": {error}, \"standard_error\": 0.01, \"rows\": 9, \"training_rows\": 9}}"
            )
        };
        let candidates = [("ctr-product-srht", 0.1), ("exact", 0.0)];
        let candidates = candidates.map(|(name, error)| candidate(name, 256, error, &validated(error)));
        let plan: Plan =
            serde_json::from_str(&plan(&candidates, "").replace("\"target_error\": 0.1", "\"target_error\": null"))
                .unwrap();
        let figure = figure(&plan, std::slice::from_ref(&plan));
        let [predicted, judged] = [0, 2].map(|at| &figure.panels[at]);
        assert_eq!(predicted.series, judged.series);
        assert_eq!(predicted.series[0].bars, [1.96 * 0.01]);
        let svg = figure.svg();
        assert_eq!(svg.matches("<circle").count(), 6, "{svg}");
        assert_eq!(svg.matches(">0</text>").count(), 3, "{svg}");
    }

    #[test]
    fn models_that_were_fitted_have_a_chart() {
        let validated =
            ", \"validation\": {\"error\": 0.03, \"standard_error\": 0.001, \"rows\": 9, \"training_rows\": 9}";
        let plan = plan(&[candidate("ctr-product-srht", 256, 0.1, validated)], "");
        let page = plan_fragment(&[&plan], "", |_| String::new()).unwrap();
        assert!(page.contains("Error on labels over time") && page.contains("0.0300 on labels"), "{page}");
    }
}
