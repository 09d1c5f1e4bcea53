// A map on a canvas: cells, margins, names, a cell under the pointer or the arrow keys.
class Grid {
  // rows, columns; index(r, c) into palette `colours`; describe(r, c); right, below: margins of
  // {values, most, name}; rowNames, columnNames or ends; boxes: outlines; pick(r, c); readout: element.
  constructor(host, label) {
    this.canvas = make('canvas', {
      tabindex: 0, role: 'application', 'aria-label': label + '. Arrow keys move from cell to cell, ' +
        'Enter chooses.' });
    this.readout = make('p', { class: 'readout', 'aria-live': 'polite' });
    host.append(this.canvas, this.readout);
    this.host = host;
    this.at = null;
    this.canvas.addEventListener('pointermove', event => this.point(event));
    this.canvas.addEventListener('pointerleave', () => { this.at = null; this.say(); this.paint(); });
    this.canvas.addEventListener('click', event => {
      this.point(event);
      if (this.at && this.view.pick) this.view.pick(...this.at);
    });
    this.canvas.addEventListener('keydown', event => this.key(event));
    new ResizeObserver(() => { if (host.clientWidth !== this.width) this.paint(); }).observe(host);
  }

  show(view) {
    this.view = view;
    this.at = null;
    this.say();
    this.paint();
  }

  point(event) {
    if (!this.box) return;
    const { x, y, width, height } = this.box;
    const c = Math.floor((event.offsetX - x) / width * this.view.columns);
    const r = Math.floor((event.offsetY - y) / height * this.view.rows);
    const inside = r >= 0 && c >= 0 && r < this.view.rows && c < this.view.columns;
    const before = String(this.at);
    this.at = inside ? [r, c] : null;
    if (String(this.at) !== before) { this.say(); this.paint(); }
  }

  key(event) {
    const { rows, columns } = this.view;
    if (!rows || !columns) return;
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1],
                    Home: [0, -columns], End: [0, columns], PageUp: [-10, 0], PageDown: [10, 0] };
    if (event.key === 'Enter' && this.at && this.view.pick) return this.view.pick(...this.at);
    const move = moves[event.key];
    if (!move || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const from = this.at || [0, 0];
    const step = this.at ? move : [0, 0];
    this.at = [Math.min(Math.max(from[0] + step[0], 0), rows - 1),
               Math.min(Math.max(from[1] + step[1], 0), columns - 1)];
    this.say();
    this.paint();
  }

  say() {
    this.readout.textContent = this.at ? this.view.describe(...this.at) : this.view.hint || '';
  }

  paint() {
    const view = this.view;
    if (!view) return;
    this.width = this.host.clientWidth;
    const narrow = this.width < 420;
    const font = 11;
    const context = this.canvas.getContext('2d');
    context.font = `${font}px ${variable('--font')}`;
    const most = names => Math.max(0, ...names.map(name => context.measureText(name).width));
    const rowNames = view.rowNames || [], columnNames = view.columnNames || [];
    const left = Math.min(most(rowNames), narrow ? 62 : 96) + (rowNames.length ? 8 : 1);
    const right = view.right ? (narrow ? 30 : 52) : 1;
    const margin = view.below ? (narrow ? 26 : 44) : 0;
    const foot = margin + (columnNames.length ? Math.min(most(columnNames), 84) + 10 : 2);
    const limit = view.limit || 560;
    const width = Math.max(Math.min(this.width - left - right, limit), 40);
    const height = view.aspect ? width * view.aspect : Math.max(view.rows * view.rowHeight, 12);
    const total = { width: left + width + right, height: 2 + height + foot };
    const ratio = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(total.width * ratio);
    this.canvas.height = Math.round(total.height * ratio);
    this.canvas.style.width = `${total.width}px`;
    this.canvas.style.height = `${total.height}px`;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.box = { x: left, y: 1, width, height };
    hatch(context, this.box);
    if (view.rows && view.columns) {
      const image = imageOf(view);
      context.imageSmoothingEnabled = image.width > width * ratio || image.height > height * ratio;
      context.imageSmoothingQuality = 'high';
      context.drawImage(image, left, 1, width, height);
    }
    const cell = { width: width / view.columns, height: height / view.rows };
    context.strokeStyle = variable('--edge');
    context.lineWidth = 1;
    context.strokeRect(left, 1, width, height);
    this.margins(context, cell, right - 12, margin - 10);
    this.names(context, font, cell, rowNames, columnNames, margin);
    for (const one of view.boxes || []) {
      context.strokeStyle = variable('--mark');
      context.lineWidth = 1.5;
      context.strokeRect(left + one.c0 * cell.width, 1 + one.r0 * cell.height,
                         (one.c1 - one.c0) * cell.width, (one.r1 - one.r0) * cell.height);
    }
    if (!this.at) return;
    const [r, c] = this.at;
    context.strokeStyle = variable('--ink');
    context.lineWidth = 2;
    context.strokeRect(left + c * cell.width, 1 + r * cell.height, cell.width, cell.height);
    context.globalAlpha = 0.3;
    context.strokeRect(left, 1 + r * cell.height, width, cell.height);
    context.strokeRect(left + c * cell.width, 1, cell.width, height);
    context.globalAlpha = 1;
  }

  margins(context, cell, right, below) {
    const { x, y, width, height } = this.box;
    const { view } = this;
    const share = (margin, i) => Math.min(Math.max((margin.values[i] || 0) / margin.most, 0), 1);
    context.fillStyle = variable('--blue');
    for (let r = 0; view.right && r < view.rows; ++r) {
      context.fillRect(x + width + 5, y + r * cell.height, right * share(view.right, r),
                       Math.max(cell.height - (cell.height > 3 ? 1 : 0), 0.5));
    }
    context.fillStyle = variable('--orange');
    for (let c = 0; view.below && c < view.columns; ++c) {
      context.fillRect(x + c * cell.width, y + height + 5,
                       Math.max(cell.width - (cell.width > 3 ? 1 : 0), 0.5), below * share(view.below, c));
    }
  }

  names(context, font, cell, rowNames, columnNames, margin) {
    const { x, y, width, height } = this.box;
    context.fillStyle = variable('--quiet');
    context.textBaseline = 'middle';
    context.textAlign = 'right';
    const ends = names => names.length === 2;
    rowNames.forEach((name, r) => {
      const at = ends(rowNames) && this.view.rows > 2 ? r * (height - font) + font / 2
                                                     : (r + 0.5) * height / rowNames.length;
      context.fillText(name, x - 6, y + at, x - 7);
    });
    const foot = y + height + margin + 6;
    if (ends(columnNames) && this.view.columns > 2) {
      context.fillText(columnNames[1], x + width, foot + 6);
      context.textAlign = 'left';
      context.fillText(columnNames[0], x, foot + 6);
      return;
    }
    columnNames.forEach((name, c) => {
      context.save();
      context.translate(x + (c + 0.5) * cell.width, foot);
      context.rotate(-Math.PI / 2);
      context.fillText(name, 0, 0, 84);
      context.restore();
    });
  }
}

// The cells as an image, one pixel each; hidden ones let the stripes below show.
function imageOf(view) {
  const canvas = make('canvas', { width: view.columns, height: view.rows });
  const context = canvas.getContext('2d');
  const pixels = context.createImageData(view.columns, view.rows);
  const palette = palettes[view.colours + '_' + theme()];
  for (let r = 0, i = 0; r < view.rows; ++r) {
    for (let c = 0; c < view.columns; ++c, ++i) {
      const index = view.index(r, c);
      pixels.data[4 * i] = palette[3 * index];
      pixels.data[4 * i + 1] = palette[3 * index + 1];
      pixels.data[4 * i + 2] = palette[3 * index + 2];
      pixels.data[4 * i + 3] = index ? 255 : 0;
    }
  }
  context.putImageData(pixels, 0, 0);
  return canvas;
}

function hatch(context, box) {
  context.save();
  context.beginPath();
  context.rect(box.x, box.y, box.width, box.height);
  context.clip();
  context.fillStyle = variable('--ground');
  context.fillRect(box.x, box.y, box.width, box.height);
  context.strokeStyle = variable('--stripe');
  context.lineWidth = 1;
  context.beginPath();
  for (let d = -box.height; d < box.width; d += 6) {
    context.moveTo(box.x + d, box.y + box.height);
    context.lineTo(box.x + d + box.height, box.y);
  }
  context.stroke();
  context.restore();
}

// A strip of all colours with its ends, and what stripes stand for.
function paintLegend(host, colours, low, middle, high, striped = 'hidden, or no number') {
  const canvas = make('canvas', { width: 255, height: 1, class: 'strip', role: 'img',
                                  'aria-label': `colours from ${low} to ${high}, ${middle}` });
  const view = { rows: 1, columns: 255, colours, index: (_, c) => c + 1 };
  canvas.getContext('2d').drawImage(imageOf(view), 0, 0);
  host.replaceChildren(make('span', {}, low), canvas, make('span', {}, high),
                       make('span', { class: 'quiet' }, middle),
                       make('span', { class: 'quiet striped' },
                            make('span', { class: 'swatch', 'aria-hidden': 'true' }), striped));
}
