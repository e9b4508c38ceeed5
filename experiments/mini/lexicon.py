"""Further words of the `mini` training corpus: they occur only in its scrambled sentences.

With the templates' words alone a model learns to complete sentences it knows, and a word or a
template that it has not met spoils the words around it. Many words in no order teach it to spell
what it hears. None of these is a word of words.py: neither a held-out one nor one of `finance`.
"""

from __future__ import annotations

_WORDS = """
    ability able aboard absence absent absently absolute absolutely absorb abundant abuse academy
    accelerator accent accept access accident accompany accomplice accomplish account accumulate
    accurate accurately accusation accuse achieve achievement acid acknowledge acquaintance acquire
    action active actual actually adapt add added addition address adequate adhesive adjacent adjust
    adjusted adjusting admiral admission adolescent adorable adult advance advantage adventure
    advertise advertisement advice advise advocate aerial affair affect afford afternoon again
    against age agency agent aggressive ago agony agreement agriculture ahead aid aim air aircraft
    aisle alarm albatross alcohol alert algae alibi alike alive allergic alley alliance allow
    almanac alone alongside aloud alphabet already also alter alternative altogether amateur
    ambassador ambition amid amidst among amount ample amusement analyze ancestor anchovy anecdote
    angel angelic anger angle anniversary announcement announcer annual anonymous another answer
    anthem antique anvil any anybody anyhow anyone anything anyway anywhere apart apartment aphid
    apparent apparently appeal appear appetite applause appliance apply appoint appointed apprehend
    approach approve approximately aqueduct arch area argument arise aristocrat armada armor army
    aroma around arrange arrest arresting arrival artery artichoke article artificial aside ask
    asked asking asleep aspect asphalt assassin assemblyman assist associate assume asteroid
    astonish asylum athlete athletic atmosphere attach attack attempt attend attention attic
    attitude attorney attract attraction auctioneer audience aurora authority autumn available
    avalanche avenge average awake award aware away awful awfully axis baby bachelor bachelors
    background backward bacteria bag bagel baggage baited balance ball ballad ballerina ballet
    bamboozle band bandit bang banish banquet baptize barbecue bare bargain bark baron barracks
    barricade barrier base basic basil basin bassist batch bath bathroom bathtub battalion battle
    bay bayonet beacon bead beagle beaker beam beard beast beat beautifully become bed bedroom
    bedspread beetroot befriend beg begin behave behavior being belch belief belly belong below bend
    beneath benefit beret besides best better beverage bewilder beyond bid bigger biggest bind
    binding bird birth birthday biscuit bit bite blackberry blackboard blackmail bladder blade blame
    blast blaze bleach bleed blemish bless blessing blind blink blizzard block blockade blood
    bloodhound bloom blossom blouse blubber bluebird blunder board boast boasted boasting bobcat
    body boiler bolster bombard bone bonfire bonus bookcase bookkeeper booklet boom boot border
    borderline boredom borough botanist bother bottom bough boulder boulevard bounce bound boundary
    bounded bouquet boutique bowler boycott bracket braid brain branch branded brazen breadth
    breakfast breast breath breathe breed breeze bribe bricklayer bride brigade brighter brightest
    brilliant bristle brittle broad broadcast brochure bronco brooch brotherhood bruise brush bubble
    buccaneer buckle buckskin bud budget buffet bugle build building bulk bulldozer bullet bulletin
    bumblebee bump bunch bundle bungle bunker buoy burden bureau burglar burial burlap burrow burst
    bush busily business busy busybody buttercup buzzard bystander cactus cafeteria cage calamity
    calculate calico camp campaign campfire canary cancellation candidate candlestick candy cannibal
    cannon cannonball canopy cantaloupe canteen canyon capable cape capsule caravan career cargo
    caribou carnation carnival carousel carriage carted cartilage cartoon cartridge carve cascade
    case cashew casket casserole cast castaway casting casual catalog catapult caterpillar catfish
    cattle cause caution cavalry caviar cavity cease ceiling celebration celestial cell cement
    center centipede century ceramicist ceremony certain certainly certificate chalk challenge
    chamber chameleon champagne champion championship chance chandelier change channel chaos
    chaperone chapter character charcoal charge chariot charity charm chart charted chat chatter
    cheaper cheapest cheat cheated check checkers cheer cherish cherub chew chickpea chieftain child
    childhood chimney chimp chip chisel chives chlorine choir choke chopsticks chord chorus chowder
    chrome chronicle chrysalis church cider cigar cinder circle circuit circumstance circus citadel
    citizen civil claim clam clamor clap clarify clash class classic claustrophobia claw cleaner
    cleanest cleanser clearly cleaver clergy cliff climb cling clip cloak cloakroom close closely
    cloth clothes cloud clover club clue cluster coal coalition coarse coast coasting coated cobbler
    cobweb cockpit cockroach cocoa cocoon coffeepot coffin cognac coil coleslaw collapse collar
    colleague collection collie colonel colony colossal column combat combine come comet comfort
    command commander comment commerce commit committee commodore commotion communicate community
    companion company compare compartment compete complaint completely complex compliment compose
    compost compound comrade conceal conceive concentrate concept concern concert conclude
    conclusion concubine condition condor conduct conference confess confetti confidence confine
    conflict confront confuse confusion congress connect connection connoisseur conquer conscience
    conscious consent consequence consider consist conspiracy constable consult consume contact
    contagious contain contempt content contest context continent continue contract contraption
    contrast contribute control convention conversation convert convey convict convince convoy
    cookbook coral corduroy core corner cornfield cornmeal corporal corps corpse corral correct
    correction correspond corridor corroded corsage corset cosmetics cosmic costing costume cougar
    cough council count counted counter countess county coup couple courage course courtroom
    cowardly cowboy crack craft cramp cranberry crash crater crawl crayon crazy creak create created
    creation creature credit creep crescent crest crew crewman crime crisis critic crochet croissant
    crop croquet cross crossbow crossed crossing crowbar crowd crucial cruel cruise crumb crumble
    crusade crush crust crypt crystal cube cubicle cuckoo cufflink culprit cultivate culture
    cupboard cupcake curator cure curfew curl currant current currently curse curve custom customer
    cutlery cycle cyclone cylinder cypress daffodil dagger daily dairy daisy damage dance dandelion
    dandruff danger dare daredevil darker darkest darkness darling darted dash data date dated dawn
    day daybreak daydream deadline deaf deal dearly death debate debris decaf decay deceive decent
    decently decide decided decision deck deckhand declare decoy decrease deed deep deeper deepest
    defeat defeated defect defend defendant defense define definite definitely degree delay delegate
    delicacy delicious delight delirious democrat demolish demonstrate dense dental deny deodorant
    depart department depend deposit depot depress depth deputy derby derive descend desert deserve
    desire desolate despair desperate desperately dessert destination destiny destruction detail
    detect detergent determine detour develop device devil devote devoted dew dexterity diagonal
    diagram dialect dialogue diameter diaper dictator diet differ difference difficult dig digest
    dignity dilemma dim dine dinghy dinner dinosaur dip diploma direct direction dirt dirtier
    disappointment disaster disciple discipline discount discuss discussion disease disgrace
    disguise disgust dish dishcloth dishwasher disinfect dismiss display dispute dissolve distance
    distill distinct distress distribute district disturb ditch divan dive divide divided divine
    division dizzy document documentary dogwood doing dollhouse dominate domino doorbell doormat
    doorway dose dot double doubt doubted dough dozen draft dragonfly drain drama dramatic
    drawbridge dread dreadfully dream dressed dressing dressmaker drift driftwood drink drinking
    drip driveway drizzle dromedary drought drown drug duchess duckling duct due dugout duke dump
    duplicate dust dusted dusting dustpan duty dwarf dwell dye dynamite eardrum earlier earliest
    early earmuffs earn earnest earring earth earthworm ease east easter easy echo eclipse ecstatic
    edge edit educate effect efficient effort eggshell either elaborate elastic elder elderly elect
    electron elegance element elevator eliminate elixir else elsewhere elves embankment embedded
    ember emblem embroidery emerald emerge emergency emotion emperor emphasis empire employ
    employment enable encounter encourage encyclopedia end ended endive endless endorse endure enemy
    engage engine enigma enjoy enjoyment enough ensure enter entertain entertainment enthusiasm
    entire entourage entrance entry environment envy epidemic episode equal equally equator equip
    equipment era erosion error escalator escape escort especially essay essence establish estimate
    estuary eternal etiquette eucalyptus evacuate evaporate even evening evenly event ever evergreen
    every everyone everything everywhere evidence evil evolve exact exaggerate exam example excavate
    exceed excellent exception excess excite excitement exclude excursion excuse execute exercise
    exhale exhaust exhibit exile exist exit expand expectation expedition expense experience
    experiment expert explanation explode exploded explore explosion export expose express
    expression expressway extend extension extent external extinguish extra extract extravagant
    extreme eyebrow eyeglasses eyelash fable fabric fabricate face facility fact factor fade fail
    failure fair fairground fairy faith fake fall false falsehood fame family famine fanatic fantasy
    far fare farewell farmhouse farmyard farther farthest fast fasten faster fastest fasting fat
    fatal fate fault favor favorite fawn fear feast feature federal fee feeble feed feel fellow
    female fender fern fertilizer festival feud fever few fiasco fiber fiction fidget field fiery
    fight figure figurine filament file fill film filter final finch fine fingernail fire fireplace
    firewood fireworks firm fisherman fishhook fit fitness flame flannel flash flask flatter flavor
    flaw flea flee fleece fleet flesh flicker flint float floated flock flood floor flounder fluffy
    fluid flush flustered flutter fly foam focus foe foil foliage folk fond fool footbridge
    footprint footstool forbid force forecast forever forgive forklift form formal former formula
    forsaken fort fortunately fortune forty forward fought foul founded foxglove fraction fracture
    fragment frame fraud freckle freeze freight freighter frequent friendship fright fringe frisky
    frolic front frost frostbite frosting frown fruit fudge fuel fugitive fulfill fully fumble fun
    function funeral fungus funnier funniest fur furnace furniture further furthermore fuselage
    fusion fuss futile future gadget gain galaxy galleon gallon gallop gamble game gang gangster gap
    gargoyle garment garnish gas gasoline gasp gateway gather gauge gavel gaze gazebo gear gecko
    gelatin gender gene general generation generous genie genius gentleman genuine geranium gerbil
    gesture get ghastly ghetto ghost giant giddy gift gimmick girdle girl give giving glad gladiator
    glamour glance glare glaze gleam glide glider glimmer glimpse glisten glitter global glory glow
    glue gnarled gnat gnaw gnome goal goblin god goggles going golden goldfish gondola good goodness
    gopher gorge gourmet govern governess government governor gown grade graded gradual graduate
    graduation graffiti grain grand granddaughter grandma grandpa grandson granola grant granted
    grapefruit grasp grass grasshopper grave gravel gravestone great greater greatest greyhound
    grief grime grin grind grinding grip grizzly groan grocery grouch ground grounded grove growl
    growth grudge gruesome guacamole guarantee guardian guerrilla guess guessed guessing guest
    guidebook guided guillotine guilt guinea gulf gull gum gun gust gutter gymnast habit haddock
    hail hailstone hair hairdresser half halibut halo halt hamburger hamlet hammerhead handcuff
    handed handicap handle handlebar hang hangover happen happier happiest happiness hard hardly
    hardship hardware harlequin harm harness harpoon harsh harvest haste hatch hatchet hate hated
    hatred haul haunt haunted have haven having havoc hazard hazelnut head headache headband
    headlight headline headquarters heal heap hearse heart heartbeat hearth heat heated heather
    heaven heavier heaviest heavily hedge height heir heiress hell hello help hemisphere hemlock
    hence herb herd hereby heredity hermit hero heroine herring hesitate hiccup hidden hieroglyph
    high highest highlight highway hijack hike hill hillside hint hippopotamus hit hitchhike hoard
    hoax hobble hobby holiday holster holy home homeland homework honesty honeycomb honeymoon honor
    hood hoodlum hoof hop hope hopefully horde horizon horn hornet horoscope horrible horrify horror
    horsefly horseshoe hospitality host hostage hostess hostile hosting hound house housekeeper
    hovercraft however howitzer howl hug hugely human humidity hummingbird humor humpback hunchback
    hunger hungrily hunt hunted hurdle hurl hurricane husk husky hut hyacinth hydrant hydrogen
    hygiene hymn hypnotist hypocrite iceberg icicle idea ideal identify idle igloo ignite ignorant
    ill illegal illness illusion image imagination imagine imitate imitation immense immigrant
    impact impala imperial implement import important impose impossible impostor impression improve
    improvement impudent impulse incense inch inchworm incident include increase incubator incurable
    indeed indicate indicator individual indoor industry infant infantry infect inferior inferno
    influence inform information ingredient inhabit inhale inherit initial injury ink inkwell inlet
    inmate inner innkeeper innovation inquire inquiry insecure insert insignia insist insomnia
    inspection inspire install instance instinct institute instruct insulate insult insure
    intelligent intend intense interior internal internet interrupt interval interview intestine
    introduce intruder intuition invade invaded invasion invent invest investment invitation invite
    invoice involve iodine irony irrigate isle isolate issue itch item ivy jackal jacuzzi jail
    jailer jasper javelin jawbone jealousy jelly jester jewelry jigsaw jingle job jockey jogger join
    joint joke journey jovial joy jubilee judgment juggle juggler jukebox jumble jump jumping
    junction jungle junior juror jury just justify kale kayak keen keep keepsake kelp kennel kernel
    kerosene kettledrum keyhole kid kidnap kidney kill kiln kilt kimono kind kindergarten kindness
    kingdom kinship kiosk kiss kissed kissing kit kitchenette knapsack knead kneecap knickers knife
    knit knob knock knot knowledge known knuckle label labor labyrinth lack lacquer lad ladle lady
    ladybug lagoon lampoon land landed landmark landscape landslide language lap largely larva laser
    lasso lasted lasting latch lately later latest latitude lattice laughable laughter launch
    launder lava lawn lawnmower layer lead leader leadership leaf leaflet league leak lean leap
    learn least lecture ledge leftover legacy legal legend legion lemon lemur length leprechaun
    lesser lesson lest let lettering leukemia level lever liaison libel liberty lichen lick lid lie
    lieutenant life lifeboat light lighter lightest lightning like likelihood likely lilac lily limb
    limerick limestone limit line linger linguist link lip lipstick liquid list literacy literal
    litmus litter little live liver livestock living load loaded loaf loan local locally locate
    location locket locomotive locust lodge lodger log logic lollipop loneliness longer longest
    longitude look loom loop loophole loosely loot lord lot lotion lottery loudspeaker lounge love
    loving low lower lowest loyal lozenge lubricate luckily lukewarm lullaby lumber luminescent lump
    lunatic lunch lunchbox lung lure lurk lush luxury lyre lyric macaw machete mackerel mad madhouse
    madness maestro magenta maggot magic magnesium magnify magnolia mahogany mail mailbox main
    mainland maintain major majority make making male mallard mallet mammal mammoth man manage
    manatee mandate maneuver mangle manner manor mantle manual manufacture manuscript marathon
    marine mariner marionette mark marketplace marmot marriage marrow marry marsh marshmallow martyr
    marvel mascara mascot mass massacre massage master masterpiece matador match mate material
    matter mature maximum maybe mayhem mayonnaise mayor meadowlark mean means meantime meanwhile
    measles mechanical meditate medium meerkat mellow melody member membership membrane memoir
    memory menace mental mentally mention menu mercury mercy mere merge merit mermaid merry mess
    message messenger metal metaphor meteor method microbe microwave middle midnight might mighty
    migraine milestone military militia milkshake million millionaire millipede mimic mind mineral
    minister minnow minor minority minstrel mint miracle mischief mischievous miserable misery
    missed missile missing mission missionary mist mistake mistletoe mistress mitten mixture moan
    mob moccasin mock mode model moderate moist molecule moment momentum money mongrel monk
    monologue monotone monsoon monster mood moon mooring moped moral moreover morning morsel mortal
    mortar mosaic mosque mosquito most mostly motel motion motive motorist mount mountain mounted
    mourn mourner mousetrap mouth mouthful movement much mucus mud muffin mugger mulberry mullet
    multiply mumps murder murky murmur muscle mushroom musket mussel must mustache mustang mutiny
    mutter mutual muzzle myself mystery myth naive name nanny narrator narrower narwhal nasal nation
    native nature naughty nausea naval navigate navigator nearby nearer nearest nearly necessary
    necktie nectar nectarine needed needlework negotiate neighborhood nest network neurotic neutral
    neutron nevertheless newborn newcomer news newsletter newt next nibble nickel nickname nicotine
    night nightmare nitrogen nobility noble nod noise nomad none nonetheless nonsense normal north
    northern nostril notch note noted nothing notion notorious nougat nourish novelty novice nowhere
    nozzle nuclear nucleus nugget nuisance numb numeral numerous nut nutcracker nuthatch nymph oasis
    oath obelisk obey obituary object obligation oblivion oboist obscure observe obsess obsolete
    obstacle obtain obvious occasion occupy occur ocean octagon octave odor odyssey offend official
    offspring often ogre ointment older oleander omen omnivore once onlooker only onto open opera
    operate operation operetta opinion opossum opponent opportunity oppose opposite option oracle
    oral orangutan orator orbit orchestra orchid ordeal ore oregano organism organize origami origin
    original ornament ornate orphan other otherwise ounce oust outback outcome outdoor outer outfit
    outlaw outline outpost output outrage outside outskirts outstanding outward oval overalls
    overcoat overcome overdue overhear overlook overseas oversight owe own owner ownership oxen
    oxygen ozone pace pacifist pack packet pad padded paddock pageant pain painfully painkiller
    pajamas palette palm pamphlet pancreas panel panic panorama pant pantry papaya papyrus
    parachutist parade paradise paradox paragraph parakeet parallel paralyze parasite parasol pardon
    parent parliament parsley parsnip parson part parted participate particle particular partly
    partridge party pass passage passed passenger passing passion passport past pastime pastor
    pasture patchwork patent path pathway patriot patrol patron pattern pauper pause pave pavement
    paw pawnshop payment peacefully peak peanut pearl peasant pebble pecan peddler pedestrian
    pedigree peer pelt penalty peninsula pennant pension people peppermint perceive percent perch
    percussion perennial perform perfume peril period perish perjury permanent permission permit
    peroxide perplex person personal perspire persuade persuaded pesky pesticide pet petal petition
    petroleum petticoat petunia phantom phase phenomenon phony phosphorus phrase physical pickaxe
    pickpocket picnic picture piece pierce piggyback pigtail pile pilgrim pill pillar pimple pinch
    pincushion pinecone pinstripe pioneer pistol piston pit pitch pitchfork pity placard place
    placid plague plan planet plankton plant plantation planted plaque plateau platform platinum
    platter platypus play player playground playwright plaza plea pleasant pleasure pledge plenty
    plight plot plow plumage plummet plunder plunge plus plywood pneumatic pneumonia poach podium
    poem point pointed pointless poison poke poker pole polecat police policy pollen pollution
    polygon pomegranate ponder ponytail poodle poor poorer poorest poppy population porch porous
    port portfolio porthole portion portrait position positive possess possession possible possum
    postage posted posting postman posture potato potential potion pouch poultry pounce pound
    pounded pour powder power practical practice prairie praise prank pray prayer preach preacher
    precise precisely predator prefer pregnant prejudice prelude premier premium preparation
    preposterous prescribe presence present presently preserve press pressed pressing pressure
    prestige pretend prettier prettiest pretty pretzel prevent previous prey price prickly pride
    priest primate prime primitive primrose prince princess print prior prism prisoner private
    privately privilege prize probably probation problem procedure proceed process prodigy produce
    product profession profile profound program progress project prominent promise promote promoted
    prompt proof proofread propaganda propeller proper property prophecy prophet proportion proposal
    propose prosecute prospect prosper prosthetic protagonist protect protection protein protest
    prove provide provided province proving provoke prowl prudent prune psalm psychic public publish
    puddle puffin pulley pulpit pulse puma pumice punch punctual puncture punish puny pupil pure
    purify purpose pursue pushover put putty pyramid python quack quail quake qualify quality
    quantity quarantine quarrel quartz queen quench query quest question queue quick quicksand quill
    quintet quirk quit quite quiver quiz quota quote quoted rabbi rabies race racetrack racquet
    radar radiant radiator radium radius raffle rage ragtime raid raided rail railing railroad rain
    rainbow raincoat raise rally ram ramp rampage random range ranger rank ransom rapid rapture
    rascal raspberry ratchet rate rated ratio rattle rattlesnake ravine raving raw ray reach react
    reaction read readily ready realize really realm reaper reason rebate rebel rebellion recall
    receiver recent recently recess recipe recital reckless reckon recluse recommend record recover
    recruit rectangle recycle redhead reduce reef refer reflect reflex reform refrigerator refuge
    refugee regard regardless regatta regime regiment region register regret regular regulate
    rehearse reign reindeer reject relate related relation relax release relevant reliable relic
    relief religion relish rely remain remedy remind remnant remote renegade renew repeated replica
    reply represent reptile republic reputation request require rescuer research resemble resent
    reserve reservoir resident residue resign resist resolve resort resource respect respectfully
    respond response responsible resting restless restore restrain restrict result resume retain
    retina retort retreat reunion reveal reveler revenge reverse review revise revision revival
    revolt revolution revolver reward rhino rhubarb rhyme rhythm rich richer richest rickety
    ricochet rid riddle ride ridge rifle rigging rigid ringleader rinse riot ripe ripple rise risk
    ritual rival river riverbank roadblock roadrunner roar roasting rob robin rod rodent rodeo rogue
    role roll romance romantic romp roof rook roost root rotary rotten rough roulette rounded route
    routine row rowboat royal rub rubbish rubble rucksack rudder rude ruffian ruffle rule rumble
    rummage rumor runaway running runway rural rush rust rusted rusting rustle ruthless saber
    sabotage sack sacred sacrifice sadder saddest sadness safe safer safest saffron saga sail
    sailboat saint sake salary sale saliva saloon salute salvage same sample sanctuary sand sandbag
    sandpaper sane sapling sapphire sarcasm sash satchel satellite satin satisfy sauce sauna sausage
    savage save saving savior savory sawdust scaffold scallop scalp scandal scar scarce scare
    scarecrow scatter scavenger scene scenery scepter schedule scheme scholar schoolboy schooner
    science scissors scold scope scorn scoundrel scout scowl scramble scrap scrapbook scratch
    screech screwdriver scribble scribe script scripture scroll scuba scuffle scurry scythe sea
    seafood seagull seam search seashell seasick season seat seated seaweed secession seclude
    section secure sedan seed seeing seek seem seesaw segment seize seizure select selection self
    seminar senior sense sentence sentinel sentry separate separately sequel sequence sequin
    serenade series serious sermon serpent servant service sesame session set settle settler several
    severe sew sewage sewer shack shackle shade shadow shaft shallot shame shampoo shamrock shanty
    shape shave shaving shed sheepdog shell shellfish shelter shepherdess sherbet shift shimmer
    shine shingle shipmate shipment shock shoelace shoot shoplifter shore short shortage shortcut
    shorter shortest shortstop shotgun should shout show showcase shower shrapnel shred shrew shriek
    shrill shrine shrink shrubbery shudder shuffle shut shutter shuttle sick sickle sickness side
    sided sidewalk siege sieve sigh sight sightseer sign signal significant silence silhouette
    silkworm silo similar simplify since sincere sing singing single siren sitcom site sitting
    situation size skeleton skeptic skill skillet skimpy skin skip skirmish skit skull sky skylark
    skyline skyscraper slalom slam slander slap slapstick slaughter slave sledgehammer sleeve sleigh
    sleight slew slide slight slim slime sling slingshot slip slither slogan slope slot sloth slouch
    slow slower slowest sludge slug slumber slump slush smaller smallest smart smell smithereens
    smock smog smoke smother smuggler snap snare snarl snatch sneak sneer snicker sniff snob snooze
    snore snorkel snout snow snowball snowflake snowman snowplow snuff snuggle soak soap soar sob
    sociable social society socket soda sodium soggy soil solar sole solid solitary soloist solstice
    solution solve somebody somehow something sometimes somewhat somewhere sonata song sonnet soon
    soot soothe sophomore soprano sorbet sorcerer sore sorrow sorry sort souffle sought soul sound
    sounded source south southern souvenir sovereign soybean space span spaniel spareribs spark
    sparkle sparrowhawk spasm speak spearmint special species specific specimen speck spectator
    specter spectrum speech speed speedboat spell spend spew sphere sphinx spice spike spillway spin
    spinal spindle spine spinster spiral spirit spit spite splash spleen splinter split splurge
    spoil spoke spokesman sponge sponsor spontaneous spook spool sport spot spout sprain sprawl
    spray spread spring sprinkle sprinkler sprinter sprout spur spy squabble squad squadron squander
    squash squat squawk squeak squeal squeeze squid squint squire squirm stab stack staff stage
    stain stair staircase stake stale stalk stallion stampede standing standstill staple starboard
    stare starfish starlight start started startle starve state stated statement static stationery
    status steadfast steady steam steamboat steed steep steeple steer stem stencil step stepladder
    stereo stern steward stick stiletto still stillness sting stingray stirrup stock stockade
    stocking stolen stop stopwatch storage store storekeeper storm story stowaway straight strain
    strand strangle strap strategy stratosphere strawberry stream streetcar strength stress
    stressing stretch strict stride strike strip strive strobe stroke stroll stronger strongest
    stronghold structure struggle strut stubble studious stuff stuffy stumble stump stun stunt
    stupid sturgeon style subject submerge submit subsequent substance subtle suburb succeed success
    successfully successor such suck sucrose sudden suds suffer sufferer sufficient suffocate
    suggest suit suitor sulfur sultan sum sumac summary summer sun sunburn sundae sunflower
    sunglasses sunrise sunset superior superstition support suppose supreme surface surfboard surge
    surgery surname surplus surprise surrender surround surveillance survey survive suspect suspend
    suspenders suspicion sustain swab swagger swallow swallowtail swamp swap swarm swear sweat
    sweatshirt sweetheart swell swerve swift swindle swine swing switch switchboard swivel sycamore
    syllable symbol sympathy symphony symptom synagogue syndicate synthetic syringe system tabby
    tablet taboo tackle tact tadpole taffy tail tailgate take taking tale talent talisman talked
    talking taller tallest tambourine tame tangerine tangle tango tannery tantrum tap tapestry tapir
    target tariff tarnish tarot tart tartan task tassel tasting tattoo taught taunt tax teacup team
    tear teardrop tease teaspoon technique tedious teenager telegraph teller temper temperature
    tempt temptation tend tenement tenor tension tentacle tepid term terrarium terrier terrific
    territory terror testament testify text textile texture than thank thankfully theft theory
    therapy thereafter therefore therein thermos thesaurus thicket thief thigh thimble thing think
    thinking thirst thistle thorn thornbush thorough those though thoughtless thousand thrash thread
    threat thrill thriller thrive throb throne throng throttle throughout thrust thumbtack thunder
    thunderstorm thus thyme tiara tick ticklish tidal tide tidy tight tightrope till timber time
    timetable timid tingle tinker tinsel tip tire tissue title toadstool toasted toasting tobacco
    toboggan today toddler toenail toffee together toilet tolerate tollbooth tomahawk tomb tombstone
    tone tongue tonic tonight tonsils toothpaste top topaz topic topple topsoil torment tornado
    torpedo torrent torso torture toss tossing total totally totem toucan tour tourist tourniquet
    towards towboat town toxic trace track trademark tradition tragedy trail trailer trait traitor
    tramp trance tranquil transfer transform transition translate transmit transport trapeze trapper
    trash travel trawler treacle treadmill treason treasure treat treated treatment treaty treble
    tree trellis tremendous tremor trench trend trespass trial triangle tribe tribune tribute
    triceps trick tricolor trifle trigger trilogy trim trinket trio trip triplet triumph trivial
    trolley troop trooper trophy tropical trot trouble trousers trout trowel truce trudge true
    truffle trumpeter trusted trustee trusting truth try tsunami tub tube tuberculosis tug tugboat
    tuition tulip tumble tundra tune tungsten turban turbulent turf turnip turnpike turret tuxedo
    tweed tweezers twelve twenty twice twig twilight twin twinkle twirl twist tycoon type typhoon
    typical tyrant uglier ugliest ulcer ultimate ultimately umpire unable unanimous uncanny under
    underdog undergo underground undergrowth underneath understand undo unfair unfold unfortunate
    unfortunately unhappy unicorn unicycle union unique unit unite universal universe unknown unlike
    unruly up upon upper uproar uproot upstairs upward uranium urban urchin urge urgent usage usher
    usual utensil utopia utter vacant vacation vaccine vagabond vague vain valet valiant valid value
    vampire vandal vanish vanity vanquish vapor variety various varsity vast vat vault vegetable
    vegetarian velocity vendetta vendor venison venom ventilate venture verandah verb verdict vermin
    verse version versus vertebra vertical very vessel vest vestibule veteran via vibrant vibrate
    vicar vice vicinity vicious victim victory view vigor viking villager villain vine violate
    violence viper virtual virtue virus viscount visible vision visit visor visual vital vitamin
    vivacious vixen vocal vocalist vocally voice volcano volley voltage volunteer vote voted voucher
    vow vowel voyage vulgar vulnerable waddle wafer waffle wage waist waistcoat waken walking wall
    wallaby wallpaper waltz wanderer warbler ward warfare warlock warn warranty warrior warthog
    washcloth wasp waste wasted wasteland wasting watchdog water watercolor watermark waterproof
    wave waving way weakest weakling weakness weapon weasel weather weatherman weave web wedded
    wedding weed weekend weep weevil welcome weld welfare werewolf west western westward wharf
    whatsoever wheelchair wheeze whenever whereas whereby wherever whether which whichever whiff
    whimper whip whiplash whirl whirlpool whisk whisker whiskey whisper wholesale whom whomever
    whose wicked widely wider widest widow width wield wiggle wigwam wilderness wildlife willpower
    win wince wind windbreak windpipe windshield wineglass winery wing wink winner winning winter
    wipe wisdom wisecrack wish wisp wisteria wit witch withdraw wither witness wizard wobble
    wolverine wonder wonderfully woodchuck woodland woods woodwind woolen word workbench workman
    workout world worm worry worse worship worst worthy wound wounded wrangler wreath wreck wren
    wrestle wriggle wrinkle written wrong yam yard yardstick yarn year yearbook yearly yeast yell
    yes yesterday yet yield yodel yogi yoke yolk yonder younger youth yoyo yucca zeal zeppelin zero
    zigzag zinc zircon zodiac zombie zone zoology zoom
"""

_NAMES = """
    Aberdeen Abigail Abrams Acheson Adelaide Adele Adkins Aidan Akron Albert Aldridge Alexander
    Alexandria Alexis Algiers Alison Alma Alvarez Alvin Alyssa Andrea Angus Anita Ankara Antwerp
    Appleton Archie Ariel Arnold Ashley Ashworth Atwood Audrey Augusta Ava Avignon Ayers Baghdad
    Baldwin Ballard Bangor Barlow Barnett Barron Bartlett Barton Bauer Baxter Beaumont Becker Beirut
    Belgrade Bella Bellamy Bender Benson Bergen Berger Bern Bernice Bertha Beverly Biloxi Blackburn
    Blake Bloomfield Bologna Bolton Bombay Bonnie Booth Bowman Boyd Bradford Brandon Brandt Bremen
    Brenda Brendan Brennan Brighton Britton Browning Bruce Bruno Buchanan Bucharest Buckley Bullock
    Burlington Burnett Byrd Calcutta Caldwell Caleb Callahan Camille Cancun Cardiff Carey Carl
    Carlisle Carmen Carmichael Carol Carroll Carson Cartland Carver Cassandra Charleston Chase
    Chattanooga Cheryl Chester Chesterton Cheyenne Christchurch Christensen Christian Christina
    Christopher Churchill Clarence Claudia Clayton Clements Clive Cobb Cochran Cody Colbert Cole
    Connelly Conrad Constance Conway Copeland Corbett Cordoba Cork Cornwell Coventry Cox Craig Crane
    Cromwell Crosby Dale Damascus Damian Daniels Darren Darwin Davenport Davies Dean Decker Delaney
    Delhi Denham Denise Denton Derek Dexter Dickens Dillard Dodson Donahue Doris Dorsey Dover Doyle
    Dubai Dudley Dunbar Dunn Durban Durham Dustin Dwight Earl Eaton Edgar Edmund Edwin Eileen Elaine
    Elias Elizabeth Ellen Elliott Ellsworth Elmer Elvis Emmanuel Engel Enid Erica Erickson Ernest
    Eugene Eunice Evan Evelyn Everett Exeter Fargo Faulkner Felicity Fielding Fitzgerald Flagstaff
    Flanagan Florida Flynn Ford Fowley Francis Freda Frederick Fuller Gail Galloway Galveston Galway
    Garland Garner Garrett Garth Gates Gavin Gemma Genoa Gentry Georgetown Ghent Gifford Gill
    Gillespie Gina Glenn Glover Godfrey Goodman Gothenburg Gould Granada Greene Greenwood Gregson
    Grenoble Greta Gretchen Griffith Grimes Guadalajara Guy Haines Hale Halifax Hall Halsey Hancock
    Hanoi Hanover Hanson Hardy Harmon Harris Harrisburg Hart Hartford Harvey Harwood Hastings
    Hawthorne Hays Heidi Hendricks Henson Herbert Herman Hewitt Hicks Higgins Hilary Hilda Hobart
    Hobson Hodges Hoffman Hogan Holcomb Holden Holland Holly Hooper Hopper Horton Houseman Howell
    Hubbard Huffman Hull Humphrey Humphreys Hurst Hutchinson Ida Igor Indianapolis Ingrid Iris
    Irving Irwin Isabella Islamabad Jackie Jacksonville Jacobs Jamie Jared Jarvis Jean Jeffrey
    Jennifer Jennison Jerusalem Jill Joanna Jodie Joel Johanna Johannesburg Johnston Jones Josephine
    Joshua Juan Julian Juneau Kabul Kane Kate Katherine Kathleen Kathmandu Katrina Kaufman Keating
    Kemp Kendall Kent Kerr Kerry Khartoum Kiev Kimberly King Kingsley Kirby Kirk Kirkpatrick Klein
    Knowles Knoxville Kramer Kurt Kuwait Kyle Kyoto Lancaster Lance Landon Langdon Lansing Larry
    Larson Lassiter Latham Lauren Lausanne Leah Lee Lehman Leicester Leipzig Leroy Leslie Lester
    Levine Lexington Lillian Lincoln Lionel Lisa Livingston Lloyd Lockwood Lois Lorraine Louise Lowe
    Lucas Lucerne Lucille Lusaka Luther Luxembourg Lynch Lynn Lyon Lyons Mabel Madeline Madison
    Madras Malaga Malone Managua Manning Maputo Marcia Marian Marilyn Marjorie Marlene Martinez
    Marvin Mary Massey Mathews Maureen Max Maxine Maynard Meadows Medellin Melanie Melton Melville
    Mercedes Merrill Meyer Michelle Middleton Mike Mills Milton Milwaukee Minsk Modena Mogadishu
    Molly Mona Monaco Monroe Monterey Montevideo Moody Mooney Moore Moran Morrison Morrow Morse
    Morton Moss Mullins Mumbai Munroe Muriel Myra Myrtle Nadia Nantes Nash Natasha Neal Ned Nellie
    Newark Newcastle Nichols Nicholson Nick Nicole Nixon Noel Norfolk Norma Norman Norton Norwich
    Nottingham Oakley Octavia Odell Odessa Oklahoma Olga Olson Ophelia Orson Orwell Osaka Osborn
    Otto Owens Pablo Page Palermo Pamela Parrish Parsons Patrick Patton Payne Peck Pennington
    Pensacola Percy Perry Peters Peterson Phelps Phillips Phyllis Pickett Pittman Platt Plymouth
    Polly Poole Pope Portsmouth Pratt Pretoria Priscilla Proctor Providence Pruitt Quigley Radcliffe
    Raleigh Ramirez Randolph Randy Rankin Reading Reeves Regina Reginald Reid Reno Reykjavik Rhoda
    Rhodes Riga Riley Rita Roanoke Robbins Roberts Robinson Rochester Rockwell Roderick Rodgers
    Rodney Roland Ronald Roosevelt Rosalind Rose Rosenberg Rosenfeld Ross Rowe Rowland Roxanne Roy
    Rubenstein Ruby Rutherford Rutledge Ryan Salinger Sally Sarajevo Savannah Schneider Schroeder
    Schultz Schwartz Scott Scranton Sellers Seth Sexton Shaffer Shanghai Shannon Sharon Shaw Sheila
    Sheldon Shepard Sherman Sherwood Shirley Sidney Silas Silverman Skinner Sloan Smith Snider
    Snyder Sofia Solomon Sonia Spears Spokane Stafford Standish Stanley Stark Steele Stein Stephens
    Stephenson Stevenson Strickland Stuart Stuttgart Summers Surrey Suzanne Swanson Sweeney Syracuse
    Tacoma Taipei Talbot Tallinn Tamara Tangier Tanya Tate Ted Tehran Terence Terrell Thackeray
    Thatcher Theodore Theresa Tillman Timbuktu Toby Todd Topeka Toulouse Townsend Tracy Travers
    Trenton Trieste Tripoli Troy Truman Tucson Turin Tuttle Tyler Tyson Upton Utrecht Valentine
    Valerie Vance Vanessa Vargas Vera Vermont Vernon Verona Veronica Versailles Vilnius Viola Wade
    Waldron Walters Walton Wanda Warner Washburn Waterloo Waters Wayne Webb Weiss Welch Wells Wesley
    Westbrook Weston Whitehead Whitfield Whitley Whitman Whitney Wichita Wiggins Wilbur Wilcox
    Wilder Wilhelmina Wilkinson Willard Willis Winchester Windsor Winifred Winslow Wolfe Woodson
    Wordsworth Worthington Wyatt Xavier Yates Yeats Yokohama Yonkers Youngblood Zachary Zagreb
    Zanzibar Zelda Zimmerman
"""

WORDS = _WORDS.split()
NAMES = _NAMES.split()  # of people and places
