// What the page is made of: numbers out of base64, colours, names. All text is set as text, never as
// markup, since tokens are somebody else's.
const data = JSON.parse(document.getElementById('data').textContent);

function bytesOf(text) {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; ++i) bytes[i] = raw.charCodeAt(i);
  return bytes;
}
// Little endian, as the file has it, whatever the machine.
function numbersOf(text, get, size) {
  const view = new DataView(bytesOf(text).buffer);
  return Array.from({ length: view.byteLength / size }, (_, i) => view[get](i * size, true));
}
const floatsOf = text => numbersOf(text, 'getFloat32', 4);
const integersOf = text => numbersOf(text, 'getInt32', 4);

const palettes = {};
for (const name of Object.keys(data.palettes)) palettes[name] = bytesOf(data.palettes[name]);

const theme = () => document.documentElement.dataset.theme;
const colour = (map, index) => {
  const p = palettes[map + '_' + theme()];
  return [p[3 * index], p[3 * index + 1], p[3 * index + 2]];
};
const variable = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// An index into a palette: 1 to 255 from low to high, 0 where there is no number.
function indexIn(value, low, high) {
  if (Number.isNaN(value)) return 0;
  return 1 + Math.round(254 * Math.min(Math.max((value - low) / (high - low), 0), 1));
}

const tokenOf = key => data.tokens[key] === undefined ? String(key) : data.tokens[key];
const hasToken = key => data.tokens[key] !== undefined;
const named = key => hasToken(key) ? `${key} “${tokenOf(key)}”` : String(key);
const selfAttention = data.queries === data.keys;
const namedRow = row => selfAttention ? named(row) : String(row);
const headName = head => `Layer ${head.layer}, head ${head.head}`;

// The first of `count` things that lie in this one of `cells` cells, and the last.
function reachOf(cell, cells, count) {
  return [Math.ceil(cell * count / cells), Math.ceil((cell + 1) * count / cells) - 1];
}
function reachText(one, many, reach, name) {
  return reach[0] === reach[1] ? `${one} ${name(reach[0])}` : `${many} ${reach[0]}–${reach[1]}`;
}

const counted = (count, one, many) => `${count} ${count === 1 ? one : many}`;

function digits(value, count = 4) {
  if (value === null || value === undefined || Number.isNaN(value)) return '–';
  if (!Number.isFinite(value)) return value > 0 ? '∞' : '−∞';
  if (value === 0) return '0';
  if (Number.isInteger(value) && Math.abs(value) < 1e9) return String(value).replace('-', '−');
  const size = Math.abs(value);
  const text = size >= 1e-4 && size < 1e6 ? Number(value.toPrecision(count)).toString()
                                          : value.toExponential(count - 2);
  return text.replaceAll('-', '−');
}
const percent = value =>
  value === null || Number.isNaN(value) ? '–' : `${digits(100 * value, 3)} %`;
const signed = value => (value > 0 ? '+' : '') + digits(value, 3);

// A head's maps and lists are read when somebody looks at them.
const readers = {
  lift: head => bytesOf(head.lift),
  mean: head => bytesOf(head.mean),
  liftExact: head => data.maps.exact ? floatsOf(head.lift_exact) : null,
  meanExact: head => data.maps.exact ? floatsOf(head.mean_exact) : null,
  entropy: head => floatsOf(head.entropy),
  peak: head => floatsOf(head.peak),
  columns: head => floatsOf(head.columns),
  distance: head => floatsOf(head.distance),
  top: head => {
    const rows = integersOf(head.top.rows), ends = integersOf(head.top.ends);
    const keys = integersOf(head.top.keys), weights = floatsOf(head.top.weights);
    const mass = floatsOf(head.top.mass);
    const found = new Map();
    rows.forEach((row, i) => {
      const from = i ? ends[i - 1] : 0;
      found.set(row, { keys: keys.slice(from, ends[i]), weights: weights.slice(from, ends[i]),
                       mass: mass[i] });
    });
    return found;
  },
  stories: head => new Map(head.stories.map(story => [story.row, {
    keys: integersOf(story.keys), products: floatsOf(story.products),
    scores: floatsOf(story.scores), visible: bytesOf(story.visible),
    weights: floatsOf(story.weights), mass: story.mass }])),
  tiles: head => head.tiles.map(tile => ({ ...tile, visible: integersOf(tile.visible),
                                               weights: floatsOf(tile.weights) })),
};
const read = new WeakMap();
function of(head, what) {
  if (!read.has(head)) read.set(head, {});
  const known = read.get(head);
  if (!(what in known)) known[what] = readers[what](head);
  return known[what];
}

// A cell of a head's map. Bytes hold steps of a tenth, of lift and of log2 of the mean weight; where
// the page has room it holds the numbers themselves.
function liftAt(head, cell) {
  const exact = of(head, 'liftExact');
  if (exact) return exact[cell];
  const byte = of(head, 'lift')[cell];
  return byte === 0 ? NaN : (byte - 128) / 10;
}
function meanAt(head, cell) {
  const exact = of(head, 'meanExact');
  if (exact) return exact[cell];
  const byte = of(head, 'mean')[cell];
  return byte === 0 ? 0 : 2 ** ((byte - 255) / 10);
}

// Elements.
function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  return filled(element, attributes, children);
}
function draw(name, attributes = {}, ...children) {
  return filled(document.createElementNS('http://www.w3.org/2000/svg', name), attributes, children);
}
function filled(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith('on')) element.addEventListener(key.slice(2), value);
    else if (value !== undefined && value !== null) element.setAttribute(key, value);
  }
  element.append(...children.filter(child => child !== null && child !== undefined));
  return element;
}
