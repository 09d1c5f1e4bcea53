// Charts of one head as SVG: arcs of a row, its story, histogram, distances.
const chart = (width, height, label, ...children) =>
  draw('svg', { viewBox: `0 0 ${width} ${height}`, width, height, role: 'img', 'aria-label': label },
       ...children);
const titled = (element, text) => { element.append(draw('title', {}, text)); return element; };
const words = (x, y, text, attributes = {}) => draw('text', { x, y, ...attributes }, text);

// Where keys stand in a width: side by side if they have room, else in proportion.
const kMostTokens = 64;
function placeOf(width, key) { return (key + 0.5) * width / data.keys; }

// Arcs from a row to the keys with its largest weights, and below each key a bar of its weight.
function paintArcs(host, row, top, choose) {
  const few = data.keys <= kMostTokens;
  const width = few ? Math.max(host.clientWidth, data.keys * 17) : Math.max(host.clientWidth, 280);
  const pad = 14, span = width - 2 * pad;
  const x = key => pad + placeOf(span, key);
  const base = 150, bars = 34, foot = base + bars + 12;
  const names = (few ? Array.from({ length: data.keys }, (_, key) => key) : top.keys).map(tokenOf);
  const labels = roomFor(names, 13) + (few || !top.keys.some(hasToken) ? 0 : 30);
  const picture = chart(width, foot + labels, `arcs of row ${namedRow(row)}`);
  picture.setAttribute('role', 'group');
  const from = selfAttention ? x(row) : width / 2;
  const start = selfAttention ? base : 20;
  picture.append(draw('line', { x1: pad, y1: base, x2: width - pad, y2: base, class: 'axis' }));
  top.keys.forEach((key, i) => {
    const weight = top.weights[i], to = x(key);
    const reach = Math.abs(to - from);
    const height = Math.min(24 + reach * 0.5, base - 8);
    const path = !selfAttention ? `M${from} ${start}C${from} ${base / 2} ${to} ${base / 2} ${to} ${base}`
      : reach < 1 ? `M${from} ${base}c-30 -56 30 -56 0 0`
                  : `M${from} ${base}C${from} ${base - 1.3 * height} ${to} ${base - 1.3 * height} ${to} ${base}`;
    picture.append(titled(draw('path', { d: path, class: 'arc', 'stroke-width': 0.8 + 7 * weight,
                                         'stroke-opacity': Math.min(0.15 + 0.85 * weight ** 0.7, 1) }),
                          `${named(key)}: ${digits(weight)}`));
    const step = few ? Math.min(span / data.keys * 0.7, 18) : 3;
    picture.append(titled(draw('rect', { x: to - step / 2, y: base + 4, width: step,
                                         height: Math.max(bars * weight, 0.75), class: 'blue' }),
                          `${named(key)}: ${digits(weight)}`));
  });
  picture.append(draw('circle', { cx: from, cy: start, r: 4.5, class: 'dot' }));
  if (few) tokenRow(picture, x, foot, row, top, choose);
  else tokenMarks(picture, x, foot, top, width);
  host.replaceChildren(picture);
}

// Every token, each a button that chooses its row.
function tokenRow(picture, x, y, row, top, choose) {
  const weights = new Map(top.keys.map((key, i) => [key, top.weights[i]]));
  for (let key = 0; key < data.keys; ++key) {
    const chosen = selfAttention && key === row;
    const weight = weights.get(key);
    const text = draw('text', {
      transform: `translate(${x(key) + 4} ${y}) rotate(-90)`, 'text-anchor': 'end',
      class: (chosen ? 'chosen ' : '') + (weight > 0.1 ? 'strong' : 'quiet') }, shortened(tokenOf(key), 13));
    if (!selfAttention) { picture.append(text); continue; }
    const button = draw('g', { class: 'token', role: 'button', tabindex: chosen ? 0 : -1,
      'data-row': key, 'aria-pressed': chosen,
      'aria-label': `row ${namedRow(key)}` + (weight ? `, weight ${digits(weight)}` : ''),
      onclick: () => choose(key, true), onpointerenter: () => { if (key !== row) choose(key, false); } },
      draw('rect', { x: x(key) - 8, y: y - 4, width: 16, height: 84, class: 'target' }), text);
    button.addEventListener('keydown', event => {
      const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -1, ArrowDown: 1 }[event.key];
      if (step) { event.preventDefault(); choose(key + step, true); }
      if (event.key === 'Enter' || event.key === ' ') { event.preventDefault(); choose(key, true); }
    });
    picture.append(button);
  }
}
// About what the longest name takes, turned.
const roomFor = (names, most) => 14 + 6.6 * Math.min(Math.max(0, ...names.map(name => name.length)), most);
const shortened = (text, most) => {
  const letters = [...text];
  return letters.length > most ? letters.slice(0, most - 1).join('') + '…' : text;
};

// The heaviest keys have names as far as these do not meet.
function tokenMarks(picture, x, y, top, width) {
  const taken = [];
  top.keys.forEach(key => {
    const at = x(key);
    if (taken.some(other => Math.abs(other - at) < 13)) return;
    taken.push(at);
    const name = hasToken(key) ? `${key} ${shortened(tokenOf(key), 10)}` : String(key);
    picture.append(draw('text', { transform: `translate(${Math.min(at + 4, width - 2)} ${y}) rotate(-90)`,
                                  'text-anchor': 'end', class: 'quiet' }, name));
  });
}

// What a shortened list leaves out is told above; what is missing from 1 otherwise went to a sink.
function weightsTitle(story) {
  if (story.keys.length < data.keys) return 'weight';
  const scored = story.scores.some((score, i) => story.visible[i] && score > -Infinity);
  const sink = scored && Number.isFinite(story.mass) && story.mass < 0.9995 ? ': a sink has the rest' : '';
  return `weight; they add up to ${digits(story.mass, 3)}${sink}`;
}

// Four steps of a row: products, scores, what the mask leaves, weights.
function paintStory(host, story) {
  const width = Math.max(host.clientWidth, 260);
  const left = 50, right = 6, panel = 84, plot = 52, top = 20;
  const count = story.keys.length;
  const span = width - left - right;
  const masked = story.scores.map((score, i) => story.visible[i] ? score : NaN);
  const steps = [['q · k', story.products, 'grey'], ['score: scaled, with all options but the mask', story.scores, 'green'],
                 ['after the mask', masked, 'green'], [weightsTitle(story), story.weights, 'blue']];
  const names = count <= kMostTokens;
  const picture = chart(width, steps.length * panel + (names ? roomFor(story.keys.map(tokenOf), 12) - 14 : 4),
                        `row ${namedRow(story.row)} from products to weights`);
  steps.forEach(([title, values, style], step) => {
    const y = step * panel + top;
    const known = values.filter(Number.isFinite);
    const low = Math.min(0, ...known), high = Math.max(0, ...known) || (low < 0 ? 0 : 1);
    const at = value => y + plot * (high - value) / (high - low);
    picture.append(words(left, y - 6, title, { class: 'panel' }),
                   words(left - 5, y + 8, digits(high, 3), { class: 'quiet', 'text-anchor': 'end' }));
    if (low < 0) picture.append(words(left - 5, y + plot, digits(low, 3), { class: 'quiet', 'text-anchor': 'end' }));
    const bar = span / count;
    values.forEach((value, i) => {
      const x = left + i * bar;
      if (!Number.isFinite(value)) {
        const why = values === masked && !story.visible[i] ? 'hidden'
          : Number.isNaN(value) ? 'no number' : digits(value);
        picture.append(titled(draw('rect', { x, y, width: bar, height: plot, fill: 'url(#hidden)' }),
                              `${named(story.keys[i])}: ${why}`));
        return;
      }
      picture.append(titled(draw('rect', { x: x + 0.1 * bar, y: Math.min(at(value), at(0)), width: 0.8 * bar,
                                           height: Math.max(Math.abs(at(value) - at(0)), 0.5), class: style }),
                            `${named(story.keys[i])}: ${digits(value)}`));
    });
    picture.append(draw('line', { x1: left, y1: at(0), x2: width - right, y2: at(0), class: 'axis' }));
  });
  for (let i = 0; names && i < count; ++i) {
    picture.append(draw('text', { transform: `translate(${left + (i + 0.5) * span / count + 4} ` +
      `${steps.length * panel - 8}) rotate(-90)`, 'text-anchor': 'end', class: 'quiet' },
      shortened(tokenOf(story.keys[i]), 12)));
  }
  host.replaceChildren(picture);
}

// Bars over an axis; `line` is a curve that is drawn over them.
function paintBars(host, label, xs, values, { width: step, line, xLabel, yLabel, describe, ticks, apart }) {
  const width = Math.max(host.clientWidth, 240), height = 220;
  // The outermost bars may hold all that lies beyond: they do not set the height.
  const known = values.filter(Number.isFinite);
  const inner = apart ? values.slice(1, -1).filter(Number.isFinite) : known;
  const high = Math.max(0, ...inner, ...(line || [])) || Math.max(0, ...known) || 1;
  const numbers = [0.5, 1].map(part => digits(high * part, 2));
  const left = Math.max(46, 12 + 7 * Math.max(...numbers.map(text => text.length)));   // room for them
  const right = 8, top = 22, foot = 40;   // the name of the axis stands above the highest bar
  const span = width - left - right, plot = height - top - foot;
  const low = xs[0] - step / 2, end = xs[xs.length - 1] + step / 2;
  const x = value => left + span * (value - low) / (end - low);
  const y = value => top + plot * (1 - value / high);
  const picture = chart(width, height, label);
  [0.5, 1].forEach((part, i) => picture.append(
    draw('line', { x1: left, x2: width - right, y1: y(high * part), y2: y(high * part), class: 'rule' }),
    words(left - 5, y(high * part) + 4, numbers[i], { class: 'quiet', 'text-anchor': 'end' })));
  const bar = span * step / (end - low);
  // A number that is none has no bar.
  values.forEach((value, i) => Number.isFinite(value) && picture.append(titled(
    draw('rect', { x: x(xs[i] - step / 2) + Math.min(0.08 * bar, 1), y: y(Math.min(value, high)),
                   width: Math.max(bar - Math.min(0.16 * bar, 2), 0.4),
                   height: Math.max(plot + top - y(Math.min(value, high)), 0),
                   class: apart && i % (values.length - 1) === 0 ? 'beyond' : 'blue' }),
    describe(i))));
  if (line) {
    picture.append(draw('path', { class: 'curve', d: line.map((value, i) =>
      `${i ? 'L' : 'M'}${x(xs[i]).toFixed(1)} ${y(value).toFixed(1)}`).join('') }));
  }
  picture.append(draw('line', { x1: left, x2: width - right, y1: top + plot, y2: top + plot, class: 'axis' }));
  ticks.forEach((tick, i) => {
    const last = i + 1 === ticks.length;   // ends where the picture does
    picture.append(words(last ? width - 1 : x(tick), height - 24, digits(tick, 3),
                         { class: 'quiet', 'text-anchor': last ? 'end' : 'middle' }));
  });
  picture.append(words(left + span / 2, height - 6, xLabel, { class: 'quiet', 'text-anchor': 'middle' }),
                 words(left, 9, yLabel, { class: 'quiet' }));
  host.replaceChildren(picture);
}

function paintHistogram(host, head) {
  const { low, high, count } = data.bins;
  if (!count || head.histogram.length < 3) return host.replaceChildren();
  const step = (high - low) / count;
  const sum = counts => counts.reduce((before, one) => before + one, 0);
  const total = sum(head.histogram);
  const all = head.histogram.slice(1, -1);
  // The bins that the chart reaches, whole ones.
  const [from, to] = head.reach;
  const first = Math.max(Math.floor((from - low) / step), 0);
  const end = Math.min(Math.max(Math.ceil((to - low) / step), first + 1), count);
  const inside = all.slice(first, end);
  const xs = inside.map((_, i) => low + (first + i + 0.5) * step);
  const start = low + first * step, finish = low + end * step;
  paintBars(host, 'histogram of scores beside N(0,1)', xs, inside.map(one => one / (total || 1) / step), {
    width: step, line: data.bins.normal.slice(first, end), xLabel: 'score', yLabel: 'density; the line is N(0,1)',
    ticks: [0, 1, 2, 3, 4].map(part => start + part * (finish - start) / 4),
    describe: i => `${digits(xs[i] - step / 2)} to ${digits(xs[i] + step / 2)}: ${counted(inside[i], 'score', 'scores')}` });
  host.append(make('p', { class: 'quiet' }, `${counted(total, 'score', 'scores')}; ${sum(head.histogram.slice(0, first + 1))} below ` +
    `${digits(start)}, ${sum(head.histogram.slice(end + 1))} at or above ${digits(finish)}.`));
}

function paintDistances(host, head) {
  const mass = of(head, 'distance');
  if (!mass.length) return host.replaceChildren();
  const half = (mass.length - 1) / 2, step = data.distance_step, last = data.distance_end - 1;
  if (half < 1) return host.replaceChildren();
  const xs = mass.map((_, i) => (i - half) * step);
  // The distances of a bar; beside the ends it may hold fewer than the others.
  const held = x => {
    const near = Math.abs(x) - (step - 1) / 2, far = Math.min(Math.abs(x) + (step - 1) / 2, last);
    if (near === far) return digits(Math.sign(x) * far);
    return x === 0 ? `${digits(-far)} to ${digits(far)}` : `${digits(Math.sign(x) * near)} to ${digits(Math.sign(x) * far)}`;
  };
  paintBars(host, 'mean mass of a row by distance', xs, mass, {
    width: step, xLabel: 'distance: key − position of the query', yLabel: 'mean mass of a row', apart: true,
    ticks: step > 1 ? [xs[2], 0, xs[xs.length - 3]] : [xs[0], 0, xs[xs.length - 1]],
    describe: i => (i % (mass.length - 1) === 0 ? `distance ${digits(Math.sign(xs[i]) * data.distance_end)} and beyond`
      : `distance ${held(xs[i])}`) + `: ${digits(mass[i])}` });
  host.append(make('p', { class: 'quiet' }, `Grey, cut off where it is higher: beyond ±${digits(last)}; ` +
    `${percent(mass[0])} before, ${percent(mass[mass.length - 1])} after.`));
}
