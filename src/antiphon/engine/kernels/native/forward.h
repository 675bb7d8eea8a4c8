/* A whole decoder of the Llama shape, in one region of the pool. */

/* Memory cut into arrays, each aligned to 64 bytes. Without memory it only measures. */
class Arrays {
 public:
  explicit Arrays(void* memory) : memory_((char*)memory) {}

  template <class T>
  T* take(int64_t n) {
    char* p = memory_ == nullptr ? nullptr : memory_ + size_;
    size_ += ((size_t)n * sizeof(T) + 63) / 64 * 64;
    return (T*)p;
  }

  size_t size() const { return size_; }

 private:
  char* memory_;
  size_t size_ = 0;
};

/* Rows of inputs that are made as a forward goes on: floats and what they are quantised to. */
struct Staged {
  float* x;
  Input* q;
  int64_t cols;

  static Staged take(Arrays& arrays, int64_t rows, int64_t cols) {
    Staged staged;
    staged.x = arrays.take<float>(rows * cols);
    staged.q = arrays.take<Input>(rows * (cols / kTile));
    staged.cols = cols;
    return staged;
  }

  Inputs inputs() const { return {x, cols, q, cols / kTile}; }
  float* row(int64_t i) const { return x + i * cols; }
  /* Columns that fill no tile belong to plain weights, which take no notice of what is quantised. */
  void quantize(int64_t i) const { quantize_row(row(i), cols / kTile, q + i * (cols / kTile)); }
};

/* One forward, as one thread of the region sees it. */
class Forward {
 public:
  Forward(Team& team, const ak_decoder& decoder, const ak_batch& batch)
      : team_(team),
        decoder_(decoder),
        batch_(batch),
        m_(batch.m),
        few_(batch.m <= kFewRows),
        q_size_((int64_t)decoder.heads * decoder.head_size),
        kv_size_((int64_t)decoder.kv_heads * decoder.head_size),
        qkv_size_(q_size_ + 2 * kv_size_),
        half_(decoder.rotary / 2) {
    Arrays sizes(nullptr);
    lay_out(sizes);
    Arrays shared(team.shared_scratch(sizes.size()));
    lay_out(shared);
    if (few_) { /* each thread makes these rows for itself */
      int64_t widest = q_size_ > decoder.hidden ? q_size_ : decoder.hidden;
      Arrays own_sizes(nullptr);
      Staged::take(own_sizes, kFewRows, widest);
      Arrays own(team.own_scratch(own_sizes.size()));
      own_ = Staged::take(own, kFewRows, widest);
    }
  }

  void run(float* logits, float* hidden) {
    begin();
    for (int32_t i = 0; i < decoder_.num_layers; i++) {
      attention(i);
      feed_forward(decoder_.layers[i]);
    }
    if (hidden != nullptr)
      team_.share(m_, 64, [&](int64_t begin, int64_t end) {
        memcpy(hidden + begin * decoder_.hidden, hidden_ + begin * decoder_.hidden,
               (size_t)((end - begin) * decoder_.hidden) * 4);
      });
    if (batch_.num_logits > 0) scores(logits);
  }

 private:
  void lay_out(Arrays& arrays) {
    int64_t rows = m_ > batch_.num_logits ? m_ : batch_.num_logits;
    hidden_ = arrays.take<float>(m_ * decoder_.hidden);
    cosines_ = arrays.take<float>(m_ * half_);
    sines_ = arrays.take<float>(m_ * half_);
    qkv_ = arrays.take<float>(m_ * qkv_size_);
    normed_ = Staged::take(arrays, rows, decoder_.hidden);
    attended_ = Staged::take(arrays, m_, q_size_);
    gated_ = Staged::take(arrays, m_, decoder_.ffn);
  }

  /* Embeddings, and the angles of each token's position. */
  void begin() {
    team_.share(m_, 8, [&](int64_t begin, int64_t end) {
      const ak_segment* segment = batch_.segments;
      for (int64_t i = begin; i < end; i++) {
        while (i >= segment->row + segment->n) segment++;
        int32_t position = segment->position + (int32_t)(i - segment->row);
        rope_angles(position, half_, decoder_.inv_freq, decoder_.rope_scale, cosines_ + i * half_, sines_ + i * half_);
        float* row = hidden_ + i * decoder_.hidden;
        unpack_row(decoder_.embedding, batch_.tokens[i], row);
        if (decoder_.embedding_scale != 1.0f)
          for (int64_t k = 0; k < decoder_.hidden; k++) row[k] *= decoder_.embedding_scale;
      }
    });
  }

  /* Has `make(row, target)` make the rows of inputs, and quantises them. Few rows are made by each thread. */
  template <class Make>
  Inputs stage(const Staged& shared, int64_t rows, const Make& make) {
    if (rows <= kFewRows && few_) {
      Staged own = own_;
      own.cols = shared.cols;
      for (int64_t i = 0; i < rows; i++) {
        make(i, own.row(i));
        own.quantize(i);
      }
      return own.inputs();
    }
    team_.share(rows, 8, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i++) {
        make(i, shared.row(i));
        shared.quantize(i);
      }
    });
    return shared.inputs();
  }

  Inputs norm(const float* weight) {
    int64_t n = decoder_.hidden;
    return stage(normed_, m_, [&](int64_t i, float* target) {
      rms_norm_row(hidden_ + i * n, weight, n, decoder_.eps, target);
    });
  }

  /* hidden += residual_scale * (in W^T + bias) */
  void add_linear(const ak_weight& w, const Inputs& in) {
    int64_t groups = num_groups(w);
    team_.share(groups, grain(w, groups, kGroup, m_, team_), [&](int64_t begin, int64_t end) {
      for_groups(w, begin, end, in, m_, [&](int64_t i, int64_t group, v8f v) {
        float* p = hidden_ + i * decoder_.hidden + group * kGroup;
        int64_t n = w.rows - group * kGroup;
        store_some(p, v8_fma(v8_set(decoder_.residual_scale), v, load_some(p, n)), n);
      });
    });
  }

  void attention(int32_t index) {
    const ak_layer& layer = decoder_.layers[index];
    queries_keys_values(layer, norm(layer.attention_norm));
    if (layer.rotates || layer.q_norm != nullptr || layer.k_norm != nullptr) rotate(layer);

    int64_t plane = decoder_.num_blocks * kv_size_ * AK_BLOCK;
    uint16_t* keys = decoder_.cache + 2 * index * plane;
    ak_cache cache{keys, keys + plane, decoder_.kv_heads, decoder_.head_size, decoder_.head_size, 0};
    ak_attention settings{decoder_.heads, decoder_.scale, 0.0f, layer.window, nullptr};
    write_cache(team_, cache, qkv_ + q_size_, qkv_size_, qkv_ + q_size_ + kv_size_, qkv_size_, batch_.segments,
                batch_.num_segments);
    attend(team_, cache, settings, qkv_, qkv_size_, batch_.segments, batch_.num_segments, attended_.x, q_size_);

    Inputs in = attended_.inputs();
    if (is_packed(layer.o.format))
      in = stage(attended_, m_, [&](int64_t i, float* target) {
        if (target != attended_.row(i)) memcpy(target, attended_.row(i), (size_t)q_size_ * 4);
      });
    add_linear(layer.o, in);
  }

  void queries_keys_values(const ak_layer& layer, const Inputs& in) {
    const ak_weight* weights[3] = {&layer.q, &layer.k, &layer.v};
    const int64_t offsets[3] = {0, q_size_, q_size_ + kv_size_};
    int64_t groups = num_groups(layer.q) + num_groups(layer.k) + num_groups(layer.v);
    team_.share(groups, grain(layer.q, groups, kGroup, m_, team_), [&](int64_t begin, int64_t end) {
      int64_t before = 0;
      for (int part = 0; part < 3; part++) {
        const ak_weight& w = *weights[part];
        int64_t n = num_groups(w), first = begin > before ? begin - before : 0;
        int64_t last = end < before + n ? end - before : n;
        before += n;
        if (first >= last) continue;
        float* target = qkv_ + offsets[part];
        for_groups(w, first, last, in, m_, [&](int64_t i, int64_t group, v8f v) {
          store_some(target + i * qkv_size_ + group * kGroup, v, w.rows - group * kGroup);
        });
      }
    });
  }

  /* Norms of heads, and rotation. */
  void rotate(const ak_layer& layer) {
    team_.share(m_, 8, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i++)
        for (int32_t h = 0; h < decoder_.heads + decoder_.kv_heads; h++) {
          float* head = qkv_ + i * qkv_size_ + (int64_t)h * decoder_.head_size;
          const float* weight = h < decoder_.heads ? layer.q_norm : layer.k_norm;
          if (weight != nullptr) rms_norm_row(head, weight, decoder_.head_size, decoder_.eps, head);
          if (layer.rotates) rope_head(head, half_, cosines_ + i * half_, sines_ + i * half_);
        }
    });
  }

  /* The gate is applied, and its result quantised, by whoever computes a tile's worth of it. */
  void feed_forward(const ak_layer& layer) {
    Inputs in = norm(layer.ffn_norm);
    int64_t tiles = (decoder_.ffn + kTile - 1) / kTile, step = rows_in_cache(layer.gate);
    team_.share(tiles, grain(layer.gate, tiles, 2 * kTile, m_, team_), [&](int64_t begin, int64_t end) {
      for (int64_t row = 0; row < m_; row += step)
        for (int64_t tile = begin; tile < end; tile++)
          gate_tile(layer, in, tile, row, row + step < m_ ? row + step : m_);
    });
    add_linear(layer.down, gated_.inputs());
  }

  void gate_tile(const ak_layer& layer, const Inputs& in, int64_t tile, int64_t begin, int64_t end) {
    constexpr int64_t kGroups = kTile / kGroup;
    int64_t last = (tile + 1) * kGroups < num_groups(layer.gate) ? (tile + 1) * kGroups : num_groups(layer.gate);
    for (int64_t group = tile * kGroups; group < last; group++) {
      int64_t n = decoder_.ffn - group * kGroup;
      for_rows(layer.gate, group, in, begin, end,
               [&](int64_t i, v8f v) { store_some(gated_.row(i) + group * kGroup, v, n); });
      for_rows(layer.up, group, in, begin, end, [&](int64_t i, v8f v) {
        float* p = gated_.row(i) + group * kGroup;
        store_some(p, apply_gate(load_some(p, n), v, decoder_.activation), n);
      });
    }
    if (!is_packed(layer.down.format)) return;
    for (int64_t i = begin; i < end; i++)
      quantize_tile(gated_.row(i) + tile * kTile, gated_.q + i * (decoder_.ffn / kTile) + tile);
  }

  void scores(float* logits) {
    int64_t n = decoder_.hidden;
    Inputs in = stage(normed_, batch_.num_logits, [&](int64_t i, float* target) {
      rms_norm_row(hidden_ + batch_.logit_rows[i] * n, decoder_.norm, n, decoder_.eps, target);
    });
    const ak_weight& w = decoder_.head;
    team_.share(num_groups(w), grain(w, num_groups(w), kGroup, batch_.num_logits, team_), [&](int64_t begin, int64_t end) {
      for_groups(w, begin, end, in, batch_.num_logits, [&](int64_t i, int64_t group, v8f v) {
        store_some(logits + i * w.rows + group * kGroup, v * decoder_.logit_scale, w.rows - group * kGroup);
      });
    });
  }

  Team& team_;
  const ak_decoder& decoder_;
  const ak_batch& batch_;
  const int64_t m_;
  const bool few_;
  const int64_t q_size_, kv_size_, qkv_size_, half_;
  float* hidden_;
  float* cosines_;
  float* sines_;
  float* qkv_;
  Staged normed_, attended_, gated_, own_;
};

static void forward(Team& team, const ak_decoder& decoder, const ak_batch& batch, float* logits, float* hidden) {
  Forward(team, decoder, batch).run(logits, hidden);
}
