"use strict";
// Asks for the figures every few seconds and draws them. Texts come from here, never from a client of the gateway.

const TEXTS = {
  "zh-CN": {
    other: "English", title: "状态", engines: "引擎", troubles: "最近的问题", ready: "可以提问", draining: "正在停止", away: "暂时没有可用的引擎",
    silent: "网关没有应答", first: "首个词元", tokens: "生成速度", waiting: "排队", running: "正在回答", failed: "出错与拒绝", memory: "显存", second: "秒",
    perSecond: "词元/秒", none: "最近没有问题。", noEngine: "还没有发现引擎。", engine: "引擎", model: "模型", runs: "运行 / 等待", cache: "KV 缓存",
    warmup: "预热后首个词元", left: "预计还需", since: "持续", updated: "更新于", minutes: "曲线：最近 {n} 分钟",
    states: { unreachable: "未连接", loading: "加载中", warming: "预热中", ready: "就绪", busy: "繁忙", stalled: "停滞", draining: "正在停止" },
    stages: {
      checking: "检查", downloading: "下载", waiting: "等待", starting: "启动", loading: "加载", compiling: "编译", capturing: "捕获",
      warming: "预热", serving: "服务", stopping: "停止", ended: "已结束",
    },
    outcomes: {
      upstream_error: "引擎出错", truncated: "回答中断", timeout: "引擎超时", internal_error: "网关内部错误", overloaded: "过载，已拒绝",
      not_ready: "没有可用的引擎，已拒绝", rate_limited: "超过限额，已拒绝",
    },
  },
  en: {
    other: "中文", title: "status", engines: "Engines", troubles: "Latest troubles", ready: "Takes questions", draining: "Stopping",
    away: "No engine is ready", silent: "The gateway does not answer", first: "First token", tokens: "Speed", waiting: "Waiting", memory: "Card memory",
    running: "Being answered", failed: "Failed or refused", second: "s", perSecond: "tokens/s", none: "None lately.",
    noEngine: "No engine has been found yet.", engine: "Engine", model: "Model", runs: "Running / waiting", cache: "KV cache",
    warmup: "First token after warm-up", left: "Should still take", since: "For", updated: "Updated", minutes: "Lines: the last {n} minutes",
    states: {
      unreachable: "unreachable", loading: "loading", warming: "warming up", ready: "ready", busy: "busy", stalled: "stalled", draining: "stopping",
    },
    stages: {
      checking: "checking", downloading: "downloading", waiting: "waiting", starting: "starting", loading: "loading", compiling: "compiling",
      capturing: "capturing", warming: "warming up", serving: "serving", stopping: "stopping", ended: "ended",
    },
    outcomes: {
      upstream_error: "The engine failed", truncated: "Answer cut off", timeout: "The engine was too slow", internal_error: "Fault of the gateway",
      overloaded: "Overloaded, refused", not_ready: "No engine ready, refused", rate_limited: "Over a limit, refused",
    },
  },
};
const EVERY_MS = 5000;
const PATIENCE_MS = 4000;
const MOODS = { ready: "good", busy: "good", warming: "wait", loading: "wait", draining: "wait" };
let language = navigator.language.toLowerCase().startsWith("zh") ? "zh-CN" : "en";
let latest = null;
let isSilent = false;

const byId = (id) => document.getElementById(id);
const texts = () => TEXTS[language];

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function seconds(value) {
  if (value === null) return "–";
  if (value < 1) return `${Math.round(value * 1000)} ms`;
  if (value < 100) return `${value.toFixed(1)} s`;
  return value < 7200 ? `${Math.round(value / 60)} min` : `${Math.round(value / 3600)} h`;
}

function count(value) {
  return value === null ? "–" : value >= 100 ? Math.round(value).toLocaleString(language) : String(Math.round(value * 10) / 10);
}

// A line over the samples, up to the highest of them or to `most`; where there is none, it breaks off.
function spark(values, label, most) {
  const width = 120, height = 36, top = 3;
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("class", "spark");
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", label);
  const highest = most ?? Math.max(...values.map((value) => value ?? 0), 1e-9);
  const runs = [];
  let open = null;
  values.forEach((value, index) => {
    if (value === null) { open = null; return; }
    if (!open) runs.push((open = []));
    const x = width - (values.length - 1 - index) * (width / 119);
    open.push([x.toFixed(1), (height - 1 - (value / highest) * (height - top)).toFixed(1)]);
  });
  for (const run of runs) {
    // A single sample is a short dash.
    if (run.length === 1) run.push([(Number(run[0][0]) - 1).toFixed(1), run[0][1]]);
    const line = run.map(([x, y]) => `${x} ${y}`).join("L");
    for (const [kind, d] of [["area", `M${run[0][0]} ${height}L${line}L${run.at(-1)[0]} ${height}Z`], ["", `M${line}`]]) {
      const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
      if (kind) path.setAttribute("class", kind);
      path.setAttribute("d", d);
      svg.append(path);
    }
  }
  return svg;
}

function tile(title, shown, unit, values, most) {
  const card = element("article", "card");
  const number = element("p", "number", shown);
  if (unit) number.append(element("small", "", unit));
  card.append(element("h3", "", title), number, spark(values, title, most));
  return card;
}

function lastOf(values) {
  return values.findLast((value) => value !== null) ?? null;
}

function drawTiles(figures) {
  const t = texts();
  byId("tiles").replaceChildren(
    tile(t.first, seconds(lastOf(figures.first_token_seconds)), "", figures.first_token_seconds),
    tile(t.tokens, count(lastOf(figures.tokens_per_second)), t.perSecond, figures.tokens_per_second),
    tile(t.running, count(lastOf(figures.in_flight)), "", figures.in_flight),
    tile(t.waiting, count(lastOf(figures.waiting)), "", figures.waiting),
    tile(t.failed, count(figures.troubles.reduce((sum, value) => sum + value, 0)), "", figures.troubles),
    ...figures.cards.map((card, index) => cardTile(card, figures.cards.length > 1 ? ` ${index + 1}` : "")),
  );
}

function cardTile(card, number) {
  const gigabytes = (bytes) => (bytes / 1e9).toFixed(1);
  const title = `${texts().memory}${number} · ${card.name}`;
  return tile(title, gigabytes(card.used_bytes), `/ ${gigabytes(card.total_bytes)} GB`, card.samples, card.total_bytes);
}

function engineCard(engine, number) {
  const t = texts();
  const card = element("article", "card");
  const head = element("div", "engine-head");
  head.append(
    element("h3", "", `${t.engine} ${number}`),
    element("p", `badge ${MOODS[engine.state] ?? "bad"}`, t.states[engine.state] ?? engine.state),
  );
  const list = element("dl");
  const add = (name, value) => list.append(element("dt", "", name), element("dd", "", value));
  if (engine.models.length) add(t.model, engine.models.join(", "));
  add(t.since, seconds(engine.seconds_in_state));
  if (engine.running !== null) add(t.runs, `${count(engine.running)} / ${count(engine.waiting)}`);
  if (engine.cache !== null) add(t.cache, `${(engine.cache * 100).toFixed(1)} %`);
  if (engine.warmup_ttft_seconds !== null) add(t.warmup, seconds(engine.warmup_ttft_seconds));
  if (engine.seconds_left !== null) add(t.left, seconds(engine.seconds_left));
  card.append(head, list);
  if (engine.stage !== null && engine.stage !== "serving") {
    add(t.stages[engine.stage] ?? engine.stage, engine.progress === null ? "" : `${Math.round(engine.progress * 100)} %`);
    const bar = element("progress");
    if (engine.progress !== null) bar.value = engine.progress;
    card.append(bar);
  }
  return card;
}

function drawTroubles(figures) {
  const t = texts();
  const lines = figures.last_troubles.map((trouble) => {
    const line = element("li");
    const at = new Date(trouble.at * 1000);
    const time = element("time", "", at.toLocaleTimeString(language));
    time.dateTime = at.toISOString();
    line.append(time, element("span", "", t.outcomes[trouble.outcome] ?? trouble.outcome), element("b", "", `×${trouble.count}`));
    return line;
  });
  byId("troubles").replaceChildren(...(lines.length ? lines : [element("li", "", t.none)]));
}

function draw() {
  const t = texts();
  document.documentElement.lang = language;
  for (const place of document.querySelectorAll("[data-text]")) place.textContent = t[place.dataset.text];
  byId("language").textContent = t.other;
  byId("language").lang = language === "en" ? "zh-CN" : "en";
  const word = isSilent ? "silent" : !latest ? null : latest.ready ? "ready" : latest.draining ? "draining" : "away";
  const verdict = byId("verdict");
  verdict.textContent = word ? t[word] : "…";
  verdict.className = `badge ${word === "ready" ? "good" : word === "away" || word === "draining" ? "wait" : word ? "bad" : ""}`;
  if (!latest) return;
  drawTiles(latest);
  byId("engines").replaceChildren(
    ...(latest.engines.length
      ? latest.engines.map((engine, index) => engineCard(engine, index + 1))
      : [element("p", "", t.noEngine)]),
  );
  drawTroubles(latest);
  const minutes = Math.round((119 * latest.sample_seconds) / 60);
  byId("updated").textContent = `${t.updated} ${latest.at.toLocaleTimeString(language)} · ${t.minutes.replace("{n}", minutes)}`;
}

async function look() {
  try {
    const answer = await fetch("status/figures", { signal: AbortSignal.timeout(PATIENCE_MS), cache: "no-store" });
    if (!answer.ok) throw new Error(String(answer.status));
    latest = { ...(await answer.json()), at: new Date() };
    isSilent = false;
  } catch {
    isSilent = true;
  }
  draw();
  setTimeout(look, EVERY_MS);
}

byId("language").addEventListener("click", () => {
  language = language === "en" ? "zh-CN" : "en";
  draw();
});
draw();
look();
